// Package pleg tells what changes among the pods of a node, and remembers how each was seen last.
//
// You have a runtime that can be asked what exists, and parts that must hear when a container starts, dies or vanishes,
// whoever did it. A [Generator] lists all pods every second, compares with what it knows ([Diff], a pure function),
// looks closely at the pods that differ, and calls Config.Tell with one [Event] for each difference. What it saw is
// there for [Generator.Pod], which answers from memory as long as that is new enough, and looks itself when it is not.
//
//	g, err := pleg.New(pleg.Config{Source: mine, Tell: func(e pleg.Event) { wake(e.Pod.UID) }})
//	if err != nil {
//		return err
//	}
//	return g.Run(ctx)
//
// A [Source] is two methods: all pods, and one pod. A container runtime behind runtime/podruntime is one, and so is
// anything that starts and ends: units of systemd, machines of a cloud.
//
// # What it promises
//
//   - Every difference between two looks is told, once, after memory has been brought up to date. What happened between
//     two looks and left no trace is not seen.
//   - Events of one pod come one at a time and in order; those of different pods come from different goroutines in no
//     order. Tell must not block. Nothing is dropped and no queue can overflow.
//   - Config.Died is for who counts what is dead: after events with a death among them it is given the look that showed it.
//   - A look that fails changes nothing; the next relist tries again. A look that hangs holds up neither other pods nor
//     the next relist.
//   - Memory never goes back: an older look does not replace a newer one. Addresses of a pod stay known after its
//     sandbox has ended.
//   - [Generator.Healthy] is about listings, and about the stream if Config.Answers is set. One pod that cannot be looked at
//     makes nobody unhealthy.
//   - Moments are compared by the clock that nobody sets: a clock set back freezes nothing.
//
// # With an event stream
//
// With a Notifier, Run also follows the runtime's event stream. An event is a hint: it leads to a look at that one pod
// at once, so events that are late, doubled, reordered or replayed do no harm, and many of one pod become few looks. An
// event without a pod is taken for one of the pod that had the container. Only a removal is believed without a look: what is
// gone does not come back. With Config.Busy, events of a pod that somebody works
// on wait for the look with which that work ends, but no longer than a second: starting a pod is then one look, not five. The stream is read without delay whatever
// hangs, because containerd starts no more containers while a reader is slow. While the stream stands, relists come once
// a minute; in its first ten seconds, as nothing is sent of what was before, and whenever it breaks, they come each
// second. It is opened anew after growing pauses, without limit.
//
// # What it costs
//
// A relist is the listing itself, and a comparison of a microsecond or less for each pod; nothing is looked at closely
// while nothing happens. With 500 pods at rest over CRI that is some hundredths of a core, and with an event stream a
// thirtieth of it (BenchmarkAtRest).
//
// All methods are safe for concurrent use. [Generator.Relist] and Pod work without Run.
//
// # What it leaves to you
//
// Whether the runtime is well otherwise, and what is to be done about an event. Of this module only the vocabulary and the
// listeners (runtime, observe) are imported: no CRI, no gRPC, no Kubernetes API.
package pleg
