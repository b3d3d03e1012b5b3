// Package cluster runs a whole Kubernetes of one node on this machine, so that upstream's own specs can judge a
// node agent: etcd, the control plane, kube-proxy, DNS, a registry, a private containerd (package bed), and the
// agent in question, upstream's kubelet or ours.
//
//	c, err := cluster.Open(".cluster")
//	err = c.Up(ctx, cluster.Kubelet)   // builds what is missing, starts, waits until the node is Ready
//	use(c.Kubeconfig())
//	err = c.Down(ctx)                  // removes all of it
//
// Everything lies in one directory. Servers listen on loopback or on the address of the pods' bridge, which
// is also the node's address. kube-proxy's tables and the ports are the machine's, so there is one cluster at
// a time. Processes outlive the program that started them. Up on a cluster that is up starts what has ended
// and changes nothing else; both methods may be called again after they failed half-way.
//
// Needed is root on a Debian-like machine.
package cluster
