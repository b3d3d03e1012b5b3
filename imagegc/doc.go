// Package imagegc keeps a node's disk from filling up with what nobody needs any more.
//
// # Images
//
// Each image that a pod ever ran from stays on the disk, since it may be wanted again; sooner or later there is no room for
// the next one. [Collector] removes images: when 85 percent of their disk are used those unused the longest, until 80 are; and
// with a MaxAge those that nobody used for so long, however much room there is. Under disk pressure [Collector.Reclaim] removes
// all that nobody uses. [Collector.Plan] and [Collector.PlanReclaim] only say what these would do, and why.
//
//   - An image that a container has stays, whatever state the container is in and whether it runs from the image or mounts it,
//     and by whatever name it is known. So do pinned ones, those seen first less than MinAge ago, and those Images answers
//     runtime.ErrInUse for. MinAge does not hold for images that were there before the first look.
//   - Use is seen when it is looked for and remembered in memory. After a restart every image counts as used at the first look
//     as far as MaxAge goes: nothing is removed by age until it passed anew.
//   - An image goes with all its names and is counted once. What cannot be removed is reported and holds up nothing else.
//   - Images share layers: the disk is measured again after those that should have been enough by their listed sizes.
//
// # Dead containers
//
// A container that died leaves its file system and its log behind. Both are worth something for a while: the newest dead
// instance of a container is what "kubectl logs --previous" and the last termination state of its pod are made of, and a
// finished init container is the proof that it need not run again. All older ones only take up room. [Dead] removes them:
// those of one pod soon after [Dead.Trim] said that something in it died, those of all pods each minute, and under disk
// pressure, by [Dead.Reclaim], also those of pods that have ended. Sandboxes that are not ready and own nothing go the same way.
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
