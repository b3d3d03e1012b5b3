// Package samemessages compares what upstream's kubelet and our agent tell a container runtime of the same pods.
//
// Each agent runs as a process of its own, with an API server and a CRI server in memory, and is given the pods of
// internal/podcases. The requests by which sandboxes and containers are made are written as text and must be the same,
// but for the differences listed, with their reasons, in allowed_test.go. So must be the files of each pod, what is in them and
// who may read it, and who ends for a critical pod, and what people read of it.
//
// TestSameOfRandomPods puts pods together from the lines of testdata, and compares their statuses, too, also after both agents
// were killed and started again. To look for what nobody has thought of yet, run many others and keep what both agents say:
//
//	go test ./samemessages -run RandomPods -seed 1000 -pods 100 -keep /tmp/kept
//
// TestSameAfterAbsence has containers end, sandboxes vanish and pods change while no agent runs.
//
// TestSameAnswers asks both agents' servers what stands in testdata/answers.txt, and TestSameNode compares the Node objects.
//
// TestSameEnds deletes such pods: both agents must stop the same containers, give them the same times, end sidecars last and
// in order, and tell the same of it.
package samemessages
