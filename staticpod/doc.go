// Package staticpod takes pods from files and addresses: the way a node starts what must run before, or without, an
// API server.
//
// [Decode] reads one manifest (YAML or JSON), sets the defaults an API server would set, and refuses
// what cannot run with all its problems at once, each with the place and what to do. It is safe on any
// bytes: size, depth and the number of values are bounded before anything is built from them.
//
// [Dir] is a pod source over a directory or a single file. It promises:
//
//   - A good file is delivered within some ten milliseconds of being written or renamed into place; a
//     rescan finds what no notification told.
//   - A pod is delivered again, under a new UID, only when the content of its file says something new. A
//     touched, chmodded or rewritten file with the same content, or with other comments, changes nothing.
//     The UID is made from content, node and path, so that it survives restarts of the agent.
//   - A file that turns bad keeps the pod of its last good content running. The pod ends when its
//     file goes, not before.
//   - A file that is bad, or gone, for less than a fifth of a second is neither: editors and half
//     written files pass through such states.
//   - A directory that cannot be read, or that was replaced by an empty one on another file system (a
//     mount that is missing), is not an empty directory. Its pods keep running and an error is logged;
//     when it is back nothing restarts. One that is there from the start only as a path to nowhere is
//     delivered as "nothing known" (complete is false), so that nothing on the node is cleaned up for it.
//     A directory replaced by an empty one on the same file system is believed after one Rescan.
//   - Two files with one pod name or UID: the one that already runs keeps it, otherwise the first by file
//     name; the other is named in the log.
//   - Every other bad entry is named once in the log until it changes or goes. Names with a leading dot are
//     ignored, subdirectories are not searched, backups (web.yaml~, web.yaml.bak) are not read, and
//     pipes, sockets and devices are never opened.
//
// [URL] is a pod source over an address, which answers a Pod or a PodList. An answer that fails, is empty, or has one pod
// that is bad changes nothing: only a good answer without a pod ends that pod. Until the first good answer the set is
// "nothing known". Text that says what the last one said makes no new pods.
//
// [Mirrors] keeps one mirror pod on an API server for each static pod, so that a cluster sees what runs here. A mirror of
// another version, or of a pod that is no more, is deleted by its UID; one that someone deletes is made again. While an
// old version takes its grace its mirror stays. Nothing on the node depends on it, and nothing is tried more often than
// once a minute for long. It needs two calls ([MirrorClient]), and is shown what the API server has; it answers which
// mirror a status is to be written to ([Mirrors.MirrorOf]), and the way back ([Mirrors.StaticOf]).
//
// What was good before the agent started is not known here: a file that is bad from the start brings no
// pod. Write manifests under a hidden name and rename them. What needs an API server (secrets,
// config maps, service accounts, claims) is refused; admission (sysctls, platform, fit) is the
// caller's, see syncloop/admit.
package staticpod
