// Package podcases has pods, one for each thing a spec can say, and a recorder of what a container runtime is told of a
// pod, as text that can be compared. It is for tests: the messages of this module are kept as text and reviewed, and
// those of upstream's kubelet are compared with them.
//
// [All] are the cases, with the API objects they need and the defaults an API server would have set. A [Recorder] is put
// before a CRI server; [Recorder.Text] of a pod is YAML in which what differs from run to run has a fixed name.
package podcases
