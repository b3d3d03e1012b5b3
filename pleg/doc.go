// Package pleg tells what changes among the pods of a node, and remembers how each was seen last.
//
// You have a runtime that can be asked what exists, and parts that must hear when a container starts, dies or vanishes,
// whoever did it. A [Generator] lists all pods every second, compares with what it knows ([Diff], a pure function),
// looks closely at the pods that differ, and calls Config.Tell with one [Event] for each difference. What it saw is
// there for [Generator.Pod], which answers from memory as long as that is new enough, and looks itself when it is not.
//
// # What it promises
//
//   - Every difference between two looks is told, once, after memory has been brought up to date. What happened between
//     two looks and left no trace is not seen.
//   - Events of one pod come one at a time and in order; those of different pods come from different goroutines in no
//     order. Tell must not block. Nothing is dropped and no queue can overflow.
//   - A look that fails changes nothing; the next relist tries again. A look that hangs holds up neither other pods nor
//     the next relist.
//   - Memory never goes back: an older look does not replace a newer one. Addresses of a pod stay known after its
//     sandbox has ended.
//   - [Generator.Healthy] is about listings alone. One pod that cannot be looked at makes nobody unhealthy.
//
// With a Notifier, Run also follows the runtime's event stream: an event leads to a look at that one pod at once. While
// the stream stands, relists come once a minute; whenever it breaks they come each second again, and the stream is
// opened anew after growing pauses, without limit.
//
// All methods are safe for concurrent use. [Generator.Relist] and Pod work without Run.
package pleg
