// Package runtimetest is for tests around a container runtime: an [Engine] in memory, which behaves as
// containerd does and can be told to misbehave, and [Run], the suite every engine passes.
//
// # The engine
//
// [New] makes an empty node with some images. What a container does is read from its command by a very
// small [Shell], so that the same pod runs here and on a real engine; a test that wants something else
// sets Engine.Behave. The test plays the world: [Engine.Exit] ends a container, [Engine.EndSandbox] a
// sandbox, [Engine.Reboot] everything. [Engine.Inject] makes calls slow, failing, hanging, or lost on
// the way back. Lists are shallow and in no order, as the interface says, so that a caller who relies on
// more is found out here.
//
// The engine starts no goroutine and keeps time with package time: in a testing/synctest bubble an hour
// costs nothing and nothing is left behind. All methods are safe for concurrent use; the exported fields
// are set before the first call.
//
// # The suite
//
// [Run] checks what the comments of runtime.Engine promise. It uses real seconds, needs an image with a
// POSIX shell, makes pods under names of its own, and removes all it made, so that it runs against a
// containerd that does other work too.
package runtimetest
