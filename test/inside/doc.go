// Package inside looks from within containers at what became of their specs: users and groups, rights, namespaces, mounts,
// names, resolvers, limits. The pods run on a private containerd; each says in its log what it sees, and the test compares.
// A machine that cannot show something (AppArmor, SELinux, swap) shows nothing of it; there the messages of test/samemessages
// must do.
package inside
