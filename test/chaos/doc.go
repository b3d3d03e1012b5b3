// Package chaos tests what the node agent promises when things go wrong around it: it is killed at any instant, its
// runtime goes away under it, many pods come and go at once, a container does not want to end.
//
//	go test ./chaos -v                                  all of it, with the figures
//	go test ./chaos -run KillNine -seed 7 -kills 200    one long run; the seed decides what happens when
//
// While the agent is killed, a watcher asks the runtime for all sandboxes and containers every few milliseconds, past the
// agent, and holds each answer against rules that must never be broken; see rules.go. The tests need root; without it
// they are skipped. Each has a bed to itself.
package chaos
