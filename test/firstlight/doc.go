// Package firstlight tests the node agent as a whole: the program, on a containerd of its own, from manifest
// to running container and back to nothing.
//
// The tests look at the node from outside, as its users do: through the CRI and crictl, through the agent's
// HTTP API and log, through files, and through processes. They need root; without it they are skipped. Each
// test has a bed to itself, because an agent ends pods that nobody on its node asked for.
//
//	go test ./firstlight -v                     everything, with the figures
//	go test ./firstlight -run '^$' -bench .     from manifest to started container, beside the bare CRI calls
package firstlight
