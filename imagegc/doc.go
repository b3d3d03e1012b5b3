// Package imagegc keeps a node's disk from filling up with what nobody needs any more.
//
// A container that died leaves its file system and its log behind. Both are worth something for a while: the newest dead
// instance of a container is what "kubectl logs --previous" and the last termination state of its pod are made of, and a
// finished init container is the proof that it need not run again. All older ones only take up room. [Dead] removes them:
// those of one pod soon after [Dead.Trim] said that something in it died, those of all pods each minute, and under disk
// pressure, by [Dead.Reclaim], also those of pods that have ended. Sandboxes that are not ready and own nothing go the same way.
//
// # What it promises
//
//   - A container that runs is never touched, nor is the newest instance of a name while its pod is wanted, whatever its
//     state: a step may be about to start it. Of the dead ones the newest PerName of each name stay.
//   - Nothing is removed for being unwanted before Removable says so of its pod, and it is asked again just before each removal.
//   - A sandbox goes after its containers, is stopped before it is removed, and the newest of a wanted pod stays.
//   - What cannot be removed is reported and holds up nothing else; the next round tries again. All may be repeated, and be
//     interrupted anywhere.
//   - Trim never blocks, loses nothing, and many for one pod count as one.
//
// Who removes an instance removes its log and the link to it first; that is up to [Instances], which podruntime.Runtime is.
// Directories of pods that are no more are left to their owners' sweepers.
package imagegc
