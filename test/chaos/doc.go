// Package chaos tests what the node agent promises when things go wrong around it: it is killed at any instant, its
// runtime goes away under it, many pods come and go at once, a container does not want to end.
//
//	go test ./chaos -v                                  all of it, with the figures
//	go test ./chaos -run KillNine -seed 7 -kills 200    one long run; the seed decides what happens when
//	go test ./chaos -run Disturbances -seed 7 -seeds 20  plans in which agent and containerd are killed and stopped
//
// TestDisturbances plays plans ([plan]) on a node ([world]) through a [driver], which also waits for all to become as wanted
// after the last fault, and for nothing to be left in the end; TestPlantedFaultsAreFound shows that it finds what is wrong.
// With the build tag cluster, TestClusterDisturbances plays them on the node of a cluster, where the API server goes away and
// the wire to it is cut or hangs. A seed makes the same plan each time; what it meets depends on the machine.
//
// While the agent is disturbed, a watcher asks the runtime for all sandboxes and containers every few milliseconds, past the
// agent, and holds each answer against rules that must never be broken; see rules.go. The tests need root; without it
// they are skipped. Each has a bed to itself.
package chaos
