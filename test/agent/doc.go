// Package agent runs examples/nodeagent in tests, as the process it is on a node: with flags, signals and HTTPS.
//
//	b := bed.Private(t)
//	a := agent.New(t, b.Endpoint())        // compiled, directories made, nothing runs
//	a.Write("web.yaml", manifest)          // renamed into the manifest directory
//	a.Start()
//	a.Ready()                              // until /healthz says ok
//	pod, err := a.Pod(ctx, "default", "web-node")
//	a.Kill()                               // kill -9; Start begins the next life in the same directories
//	code, took := a.Stop()                 // SIGTERM
//
// An Agent belongs to one test, which it fails when a step of its own fails (Start, Kill, Stop, Ready, Write, Remove);
// what asks the agent something returns errors, so that it can be asked again. Methods may be called from several
// goroutines, but Start, Kill and Stop one at a time. The process ends with the test. Pods do not: whoever owns the
// container runtime removes them.
//
// The node is named "node", so the pod of a manifest named web is web-node.
package agent
