// Package config reads what a kubelet is configured with, so that a node can change its agent and keep its files.
//
// A node has a KubeletConfiguration file, perhaps a directory of drop-ins, and a unit file with flags. [Load] reads the
// files as kubelet v1.37.2 does: defaults, then the file, then each *.conf below the directory by name, merged key by key
// (a list replaces a list, null takes a key away). Flags come last: [Bind] declares them, [Overrides.Apply] lays those that were given
// over what was loaded, and [Overrides.Load] does all of it with [Validate] at the end.
//
// What a file holds is never dropped in silence. A field nobody knows, or one given twice, is a [Warning] with file and path;
// with Strict it is an error. A value of the wrong type or kind is an error that says what to write instead. [Validate] gives all
// problems at once. What is known and valid but has no effect in this agent is what [Unsupported] finds; [Supported] is the
// list of what has.
//
// Without a file the defaults of an empty file hold: no anonymous requests, authorization by the API server, the default eviction
// thresholds. The kubelet's own flags alone would let everybody in.
//
// The package reads files and nothing else: it looks at no host, starts nothing, and keeps no state. What it gives belongs to
// the caller. Functions may be called at the same time, an [Overrides] is for one goroutine.
package config
