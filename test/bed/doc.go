// Package bed gives tests and the demo a container runtime of their own: a private containerd under one
// directory, with its own root, state, sockets, network and images. A containerd of the system is never
// touched, and several beds live beside each other.
//
//	b, err := bed.Open("/tmp/mybed")
//	err = b.Up(ctx)          // installs and builds what is missing, starts, imports images
//	use(b.Endpoint())        // unix:///tmp/mybed/containerd.sock
//	err = b.Clean(ctx)       // removes pods, processes, mounts, network and directory
//
// containerd runs in a session of its own: it outlives the program that started it, and Ctrl-C in that
// program's terminal does not reach it. [Bed.Stop] and [Bed.Start] are a restart under running pods, and
// [Bed.Kill] is the hard variant; the shims, and so the pods, live on. All methods may be called again
// after they failed half-way. A Bed has no state in memory: two processes may open the same directory, and
// Up and Clean take turns.
//
// Tests call [ForTest] or [Private]. Needed is root on a Debian-like machine; without root Up answers
// [ErrNotRoot].
package bed
