// Package probetest is a small web service whose tests ask its health endpoints just as a Kubernetes node would.
//
// The service is in shop.go and knows nothing of probes. What to look at is shop_test.go: httptest serves the handler,
// package probe asks it, and each test is one thing that goes wrong in a cluster and not on a laptop: an endpoint that
// sends strangers to a login page, that needs longer than a probe waits, or that restarts the service because of a
// database.
//
// The command in cmd/probe asks any server from a shell:
//
//	go run ./examples/probetest/cmd/probe -timeout 1s http://127.0.0.1:8080/healthz
package probetest
