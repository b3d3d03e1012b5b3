// Package manager runs the probes of all pods on a node and keeps what they found.
//
// You have pods and see their containers come and go; something must ask each container whether it is alive, ready and
// started, at the right times, and remember the answers. Hand every look at a pod to [Manager.Track], read
// [Manager.Results], and let [Manager.Run] run. Config.Changed tells when a check has changed a result.
//
//	m, err := manager.New(manager.Config{Exec: engine, GRPC: grpcprobe.Check, Changed: func(uid types.UID) { wake(uid) }})
//	go m.Run(ctx)
//	...
//	m.Track(pod, seen, false) // after each look
//	ready := m.Results(pod.UID)[containerID].Readiness == runtime.Passing
//
// # What it promises
//
// Probes belong to a container instance, that is to a container ID: a container that was restarted begins anew.
// Regular containers and sidecars (init containers with restartPolicy Always) are probed, while they run.
//
//   - Until checks decide, liveness is Passing, readiness Failing, startup Undecided. For a container ID of which the
//     pod's status speaks already, readiness and startup are what stands there, so that a restarted agent takes no
//     healthy pod out of service and repeats no startup probe.
//   - Liveness and readiness wait until the startup probe has passed. A startup probe that has decided, and a liveness
//     probe that has failed, rest until there is a new container ID.
//   - The first check comes as soon as the initial delay allows, the next ones a period apart, up to 20 ms late so that
//     many begin together. Only containers that ran before the manager was made get a random part of a period (10 s at
//     most) more, so that they do not all begin at once.
//   - A check that could not be carried out is tried three times in all, then dropped: it changes nothing.
//   - In a pod that ends, liveness and startup probes stop; readiness goes on as long as a container runs.
//
// Track, Results and Forget may be called at any time from any goroutine, also before and after Run; they take
// microseconds and never block. One goroutine and a heap of times serve all probes; a goroutine for a check lives as
// long as that check. Few checks run at once while they are quick; one that is slow makes room for others, so that
// targets that hang delay nobody else.
//
// # What it costs
//
// Ten thousand HTTP and TCP probes each ten seconds, the agent around them included, are a fifth of a core and less than 60
// MB: half of the time and of the memory that a goroutine for each takes. What is left is the kernel's work for
// connections. With a fifth of the targets hanging, the others are asked 20 ms late at most (p99), which is how long checks
// wait for each other to begin together. A thousand gRPC probes are a tenth of a core: a check over gRPC costs about four
// times one over HTTP, a command in a container about two times, without what the runtime does for it. BenchmarkScale
// measures all of it.
//
// # What it leaves to you
//
// What follows from a result is left to the caller: that a container is stopped, and with which grace period.
//
// A probe that nobody can carry out (exec without Config.Exec, gRPC without Config.GRPC) stays Undecided.
package manager
