package podspec

// pageSize is what the kernel counts memory in, whatever the machine's.
const pageSize = 4096

// Throttle is from how much memory on who uses it is slowed down: factor, 0 to 1, of the way from its request to its limit. 0: it
// never is, as there is no limit or no way to it.
func Throttle(request, limit int64, factor float64) int64 {
	if factor == 0 || limit == 0 || request == limit {
		return 0
	}
	if high := int64((float64(request)+float64(limit-request)*factor)/pageSize) * pageSize; high > request {
		return high
	}
	return 0
}
