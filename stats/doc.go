// Package stats says what a node has and what is used of it: for the node's object, for whoever guards it, and for people
// who ask what their pods need.
//
// You want to know how big this host is and how full. A [Collector] reads it from the kernel's files (/proc, /sys, cgroups of
// version 1 and 2), from the file systems, and for pods from a container engine's figures. It remembers nothing but the latest
// CPU readings, from which rates are made, and what [Collector.Run] measured: each call looks anew. Calls for a summary at the
// same time share one look, which goes on for at most 30 s when all who asked went away. All methods are safe for concurrent use.
//
// What files of pods take up cannot be asked of the kernel: somebody has to go through them. Run does so each minute for volumes
// and logs (each ten seconds for new pods), one pod after another, resting nine times as long as it works; a summary never waits for it and only takes what it
// found last. Hosts files and last words of containers count as their pod's storage.
//
// [Collector.Machine] answers even if it finds only part: what cannot be read is empty, and only a host without CPUs or memory
// is an error. [Collector.Summary] has the form of the kubelet's /stats/summary; a figure that is not known is absent there,
// never zero.
//
// On other systems than Linux there are no such files; Config.Root and Config.Disk then say where figures come from.
package stats
