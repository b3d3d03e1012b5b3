// Package syncloop keeps pods as they are wished for.
//
// You have pods from somewhere (a directory, an API server, a document behind an address), something that can make them
// real (runtime/podruntime over a container runtime, or your own backend), and somebody who wants to know how they are.
// A [Loop] joins the three: it compares what sources want with what is, gives each pod a worker, and goes on until its
// context ends. When it ends, the pods stay; the next loop finds and adopts them.
//
// A pod's life:
//
//		       refused, or ended
//		  +---------------------------+
//		  |                           v
//		held --admitted--> syncing --ended--> terminating --still--> terminated --returned--> finished --gone--> (forgotten)
//
//	  - held: it waits for another pod to be gone: one of the same name from a file, or one that makes room for it.
//	  - syncing: steps look, mount volumes, set up the network, and call Runtime.Sync until all is as wished.
//	  - terminating: it was deleted, is absent from a complete source, has reached a terminal phase or its deadline, or was
//	    killed. The step under way is cut, Runtime.Stop is called until nothing runs.
//	  - terminated: volumes, network and the rest of what the node holds are given back.
//	  - finished: the last status is told, then StatusSink.Finished. Absent from its source, it is purged and forgotten. One from
//	    a file that was refused, or ended for the machine's sake, is too once it would be let in, and begins anew: nobody brings
//	    another in its place.
//
// A wake does two independent things. A step is taken, one at a time for one pod; wakes meanwhile make one more. And the
// newest status is published from memory, which does not wait for the step: a readiness flip is out in milliseconds while
// an image is still being pulled. [Roster] tells who is on this node, and is how other parts wake and kill.
//
// A pod that runs may come to want other sizes (requests and limits). The admitters are asked again, with the pod as it is
// among the others; what they allow is promised, and kept in Config.State before it is used. Everybody, the runtime too, sees
// a pod with the sizes it was promised. What is refused waits for room, with condition PodResizePending, or for another wish
// if the reason is Infeasible; nothing else is ended for it. PodResizeInProgress stands until [runtime.Pod.Applied] shows that
// what runs has its sizes; a Runtime that fills no Applied is taken to have given them.
//
// What the runtime has and no source wants is a stranger. Strangers are stopped and removed, but only once all sources have
// said everything they want.
//
// The source named "api" is an API server's. Its pods get the marks by which a node knows them (annotations
// kubernetes.io/config.source and config.seen), whatever they say themselves; several of one name may run, as the uid
// tells them apart; a pod that is terminal there never runs again; and of a pod that is absent there no status is told.
//
// Whoever writes a Runtime finds the rules at the interface, and in package looptest a suite that checks them.
//
// The loop calls each joint from many goroutines, but for one pod one call of Sync, Stop, Remove, Mount, Unmount, Setup and
// Teardown at a time, and one of the StatusSink at a time.
package syncloop
