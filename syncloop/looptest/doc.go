// Package looptest is for who writes a runtime of whole pods: [Run] checks the rules that syncloop relies on.
//
// You have a backend that is no container runtime (a cloud that rents machines, units of systemd, a fleet of phones), you
// have written the five methods of syncloop.Runtime over it, and a pod came up. What goes wrong later goes wrong quietly:
// pods that start twice after a cut, an agent that is busy at rest, a machine that nobody gives back. [Run] looks for that from
// outside, by the five methods alone:
//
//	func TestRuntimeKeepsTheContract(t *testing.T) {
//		looptest.Run(t, func(t *testing.T) looptest.Fixture {
//			c := cloud.Dial(t)
//			return looptest.Fixture{
//				Runtime:   mine.New(c),
//				Next:      func() syncloop.Runtime { return mine.New(c) },
//				Container: v1.Container{Image: "example.com/web:1", Command: []string{"serve"}},
//			}
//		})
//	}
//
// Each rule is a subtest of its name. Where one is broken the test says which, what was seen, and what to do about it. The more a
// [Fixture] brings, the more rules are tested; what is not there is left out, and what your backend cannot do is excepted by name
// with a reason: the test's log names both. It takes real time, polls with deadlines, makes pods under uids of its own and
// takes them away: a real backend may be behind it. syncloop's package has the joint itself; examples/provider passes this
// suite with a hundred lines.
//
// # Looks
//
//   - a look at a pod that does not exist is empty: it has the uid that was asked for and a time, and there is no error.
//     The loop asks for pods that come, and for those that have gone.
//   - a look says when it was taken: At is a moment within the call, as time.Now() gives it. What the loop does next depends
//     on whether it has seen what came of the last step.
//   - a look shows what was asked for: the pod, its containers and its sandbox with the pod's names, an ID for each, states,
//     images and times. Statuses, probes and image collection go by these.
//   - a look and the list show the same: IDs, states, and their order. What differs is looked at again at each listing.
//   - the list has every pod once: what is not listed is taken to be gone, and what nobody wants of what is listed is ended.
//   - a look that is cut is an error or whole: when its context has ended, half an answer is worse than none.
//   - a look does not wait for a stop: a pod may take an hour to end, and everybody's list is one call.
//
// # Sync
//
//   - a pod comes to run: by steps as the loop takes them. After Acted the next comes at once, after an error a little later,
//     else at RetryAt, or when the list shows a change. A runtime that needs another step and says none of this waits for the
//     resync, a minute.
//   - a pod at rest is left alone: Sync of a pod that is as it is to be changes nothing, is no error, and answers
//     Acted false. Who always says Acted has the loop step without rest; after a hundred such steps it warns, and takes one a second.
//   - a pod that is handed in is not changed: all parts of an agent read the same object, at the same time.
//   - a sync that is cut is gone on with: it returns soon, and the next step makes nothing twice. Steps are cut whenever
//     a pod is to end, and when the agent does.
//   - what ended is started again as its restart policy says: as another instance, with an ID of its own and one more in
//     Restarts, the newest first. syncloop restarts nothing.
//   - what ended for good stays ended: with its exit code and times, by which the pod has succeeded or failed.
//   - what its liveness probe gives up is started again: results are in SyncInput.ProbeResults, by the container's ID.
//   - new sizes come to rest: a running container whose requests and limits change goes on. Where Applied is filled it shows
//     in the end what was asked for, or Sync says why not.
//   - what cannot be started is told and tried again later: an error, or a reason in Waiting; and RetryAt, without Acted in the
//     steps that only wait.
//   - pods of one name are told apart by uid: one that was made anew comes while the old one ends. It may have to wait (an
//     error such as runtime.ErrInUse), but must not be taken for the other.
//   - pods are worked on side by side: calls for different pods come at the same time, and none touches another's.
//
// # Stop
//
//   - a stopped pod runs no more: when Stop answers nil no container runs, no sandbox is ready, and nothing comes back. What
//     the pod held is given to others after that.
//   - a stop may be repeated, of what is gone too: an older look may come with it.
//   - a stop without the spec ends the pod: pod is nil when nobody knows it any more.
//   - a stop gives the grace and no more: Termination.Grace, or where that is zero the pod's own.
//   - a stop that is cut is gone on with, and made shorter: it returns soon and leaves what runs the rest of its grace; the
//     next may bring a shorter one, which counts.
//
// # Remove
//
//   - release leaves what ended to be read: how it ended is in the pod's last status, and the next agent must not take it for
//     a pod that never ran.
//   - renew lets a pod begin anew: nothing is seen of it after that, and Sync under the same uid makes it again.
//   - purge leaves nothing: neither in looks nor in lists, or it is removed again and again.
//   - a removal may be repeated, of what is gone too: no error, and one that is cut returns soon and is gone on with.
//
// # The next agent
//
//   - the next agent finds what the last one left: the same pods, IDs and counts, and leaves at rest what is at rest. Agents
//     are restarted for each update, and pods go on.
//   - the next agent goes on where the last one was cut: in the middle of a first step, too.
//   - the next agent ends what nobody knows: pods whose spec went away meanwhile.
//
// # What happens
//
//   - what happens is heard by listing: package pleg tells of starts and ends by Pods alone, with the IDs that looks show.
//   - what happens is told by the notifier: where there is one, of each start and end, with the pod's uid or an ID.
//   - a loop takes a pod through its life: a real one, with pleg; a second loop adopts the pod, ends it when nobody
//     wants it, and a third ends one that nobody knows.
package looptest
