// Package conformance lets upstream's own specs judge the node agent of a cluster, and compares the judgements
// on two agents.
//
//	rows, err := conformance.Run(ctx, conformance.Config{Kubeconfig: c.Kubeconfig(), Focus: `\[sig-node\]`})
//	err = conformance.Write("kubelet.tsv", rows)
//	fmt.Print(conformance.Table(a, b), conformance.Compare(a, b)) // each the name of an agent and its rows
//
// A file of rows has one line a spec, sorted by name: result, seconds, name, and the first line of the failure,
// with tabs between. What the kubelet passes and another agent does not is that agent's fault; what both fail is
// the fault of the cluster around them.
package conformance
