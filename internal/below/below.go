// Package below says where paths lead that must not leave a directory, through links which only this host understands.
package below

import "path/filepath"

// Leads is where a path below a directory leads on this host, from the directory on; empty if that is not within it or not
// there. Links from the host's root count, which the kernel's lookups below a directory refuse, such as /var/run in /. Nothing may
// be believed of the answer: the links may be others by now. Open it in a way that cannot leave the directory.
func Leads(dir, name string) string {
	base, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return ""
	}
	to, err := filepath.EvalSymlinks(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	within, err := filepath.Rel(base, to)
	if err != nil || !filepath.IsLocal(within) {
		return ""
	}
	return within
}
