// Package kubeapi connects a node agent to a Kubernetes API server.
//
// You have parts that want pods, ConfigMaps, a place to write statuses and events, and somebody to ask who a caller is. The
// API server has all of these. A [Client] is one set of connections to it, [LoadREST] reads where it is from a kubeconfig;
// everything else here is a thin part over a Client:
//
//   - [Source] delivers the pods bound to this node (a syncloop.PodSource), [Sink] writes their statuses and deletes the
//     objects of pods that are over (a status.Sink);
//   - [Objects] reads ConfigMaps, Secrets, Services and RuntimeClasses by watches on just those that are in use, and asks for
//     service account tokens;
//   - [Lease] tells that the node lives, [Events] tells what happens on it;
//   - the Client itself registers and updates the Node object, makes and deletes mirror pods, asks for certificates
//     (certificate.Requester) and for reviews (access.Reviewer).
//
// The node example makes a backend that is no container runtime a node of a cluster, with all that takes.
//
// # What it promises
//
//   - A source says nothing before the first complete list has come, and never takes a broken watch for an empty one.
//   - What is written carries the uid it is meant for: a pod of the same name that came later is never touched.
//   - A status is sent as the difference to what the server has. Conditions of others stay as they are, and a pod that has
//     ended stays ended, also when what we know of it is old.
//   - A missing object is [runtime.ErrNotFound], whatever the server called it. Every other error is the server's, wrapped.
//   - All methods are safe for concurrent use and return soon after their context ends.
//
// # What it costs
//
// The wire format is protobuf over one HTTP/2 connection. Package rest and the reflectors of package cache over a scheme of
// a few types are about 20 MB of memory less than the typed clientset.
package kubeapi
