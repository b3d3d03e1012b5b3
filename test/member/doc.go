// Package member disturbs a node of a real cluster and looks at what becomes of it: the API server goes away, hangs or
// forgets the node, the agent is killed, a hundred pods come and go at once, and kubelet and nodeagent take turns on one
// root directory. It is to a cluster what package chaos is to a node alone.
//
// The tests have the build tag cluster and want a cluster that is up, in the directory KUBELETKIT_CLUSTER:
//
//	make test-cluster
//
// They end its agent and run agents of their own, whose way to the API server leads through a Proxy. What an agent asked
// for is read from the API server's audit log. Benchmarks compare the figures of both agents.
//
// Without the tag there is only what these tests stand on: the proxy, the reader of the audit log, and the normal form of
// what kubectl prints.
package member
