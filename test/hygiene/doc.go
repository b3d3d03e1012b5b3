// Package hygiene holds what a stranger checks before importing a module: that go.mod and go.sum are in order, that no
// known vulnerability is reached, whose licences come along, that everything builds elsewhere, what changed for importers,
// that a build can be repeated, and that one package alone brings what it says and no more.
//
// [Checks] are all of them. Each looks at a [Repo], writes into temporary folders and the cache only, and answers with a
// few words of what it found, or with an error that says what to do. They need Go, git and make, and the network as far as modules
// are missing. [Run] does them one after the other. They are written to be run by make hygiene, through test/cmd/hygiene;
// the decisions in them are functions with tests of their own.
package hygiene
