package looptest

// Rules are the names of all rules.
func Rules() (names []string) {
	for _, r := range rules() {
		names = append(names, r.name)
	}
	return names
}
