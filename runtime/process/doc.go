// Package process is an engine that runs containers as processes of this host.
//
// You want to try pods, or to run them on a device, where there is no container runtime, no root and no registry. This
// engine needs a directory it may write to. A container's image is either the word "host" or a directory with programs in
// it; everything else is refused with the reason ErrImageNeverPull.
//
// # What a container gets
//
// A process in a session of its own, with the environment of its config and nothing of the agent's but PATH and HOME, its
// output in a log file of the CRI format, its exit code kept. With "host" it works in an empty directory of its own; with
// a directory as image it works there, and finds its programs there, in bin below it, and then on the host. The directory
// is no root: paths are the host's. Volumes are not mounted but linked, below the directory in the environment variable
// KUBELETKIT_MOUNTS: what a pod calls /data is $KUBELETKIT_MOUNTS/data.
//
// There is no isolation. All containers run as the agent's user (an agent that is root gives them the user they ask for),
// see each other, share the host's network, and are held to no limits of memory or CPU. A pod that asks for something which
// the engine cannot give and which would change what its programs do (a terminal, a runtime class, sysctls, a device,
// another user) is refused; what asks for less rights (dropped capabilities, a read-only root) is not enforced.
//
// # The shim
//
// Each container has a shim, a process that outlives the agent: the program starts itself anew, and [Shim], called first
// thing in its main, takes over there:
//
//	func main() {
//		if process.Shim() {
//			return
//		}
//		...
//
// The shim starts the container, writes its log, and keeps its exit code. An agent that comes back finds running and ended
// containers by the files in Config.Root, and no instant at which the agent, the shim or the machine ends leaves them
// unclear: files come into being whole, processes are known by pid, start time and boot, and a container whose shim was
// killed is killed by the kernel and told of with exit code 137. When a container's first process ends, everything it left
// behind is killed. Under systemd an agent needs KillMode=process, or its containers end with it; an agent that is process 1
// must wait for children it does not know, or ended shims stay as zombies.
//
// # What it promises and what not
//
// It keeps the contract of runtime.Engine (runtimetest.Run), starts no goroutine that outlives a call, and works for
// several programs at once over one Root. It is also a runtime.Notifier, runtime.LogReopener and runtime.Stats; memory in
// its figures counts shared pages once for each process. Root holds the environment of containers, secrets included, in
// files only their owner can read. Elsewhere than on Linux [New] answers errors.ErrUnsupported.
//
// There are no streams into containers: Exec runs a command without input and terminal and answers what it printed. An
// agent that serves the kubelet's API answers exec -it, attach and port-forward with an error (examples/standalone).
//
// It imports the standard library, golang.org/x/sys and the vocabulary of this module.
package process
