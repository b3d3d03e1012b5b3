package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/observe"
)

// row is one pod in the table. The words are those of kubectl get pods.
type row struct {
	uid       types.UID
	namespace string
	name      string
	ready     string
	status    string
	restarts  int
	restarted time.Time // the latest restart; zero: none that is known
	created   time.Time // zero: not known
	ip        string
	last      string
}

// rowsOf makes rows of pods and their latest events, by namespace and name.
func rowsOf(pods []v1.Pod, last map[types.UID]*observe.Entry) []row {
	rows := make([]row, len(pods))
	for i := range pods {
		rows[i] = rowOf(&pods[i], last[pods[i].UID])
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name), cmp.Compare(a.uid, b.uid))
	})
	return rows
}

func rowOf(pod *v1.Pod, last *observe.Entry) row {
	s := summarize(pod)
	r := row{
		uid: pod.UID, namespace: pod.Namespace, name: pod.Name,
		ready: fmt.Sprintf("%d/%d", s.ready, s.containers), status: s.reason,
		restarts: s.restarts, restarted: s.restarted, created: pod.CreationTimestamp.Time, ip: cmp.Or(pod.Status.PodIP, "<none>"),
	}
	if r.created.IsZero() && pod.Status.StartTime != nil { // a pod from a file may have no other time
		r.created = pod.Status.StartTime.Time
	}
	if last != nil {
		r.last = last.Reason + ": " + last.Message
	}
	return r
}

// cells of a row, without what changes by the clock alone when steady is set.
func (r row) cells(now time.Time, steady bool) []string {
	restarts := fmt.Sprint(r.restarts)
	if r.restarts > 0 && !r.restarted.IsZero() && !steady {
		restarts += " (" + ago(now, r.restarted) + " ago)"
	}
	age := ""
	if !steady {
		age = ago(now, r.created)
	}
	cells := []string{r.namespace, r.name, r.ready, r.status, restarts, age, r.ip, r.last}
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	return cells
}

func ago(now, then time.Time) string {
	if then.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(then))
}

// printable keeps what pods say from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// summary is a pod in a few words.
type summary struct {
	ready, containers, restarts int
	restarted                   time.Time
	reason                      string
}

// summarize follows kubectl: the first unfinished init container decides, then the first container with something to
// say, then the phase.
func summarize(pod *v1.Pod) summary {
	s := summary{containers: len(pod.Spec.Containers), reason: cmp.Or(pod.Status.Reason, string(pod.Status.Phase), "Pending")}
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Reason == v1.PodReasonSchedulingGated {
			s.reason = c.Reason
		}
	}
	sidecars := map[string]bool{}
	for _, c := range pod.Spec.InitContainers {
		if podspec.Sidecar(&c) {
			sidecars[c.Name] = true
			s.containers++
		}
	}
	var all, restarting summary // restarts of all init containers seen, and of sidecars alone
	word, initializing := initWord(pod, sidecars, func(c *v1.ContainerStatus) {
		all.count(c)
		if sidecars[c.Name] {
			restarting.count(c)
			if c.Ready && c.State.Terminated == nil {
				s.ready++
			}
		}
	})
	if initializing {
		s.reason, s.restarts, s.restarted = word, all.restarts, all.restarted
	}
	if !initializing || isTrue(pod, v1.PodInitialized) {
		s.restarts, s.restarted = restarting.restarts, restarting.restarted
		s.addContainers(pod)
	}
	if pod.DeletionTimestamp != nil && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
		s.reason = "Terminating"
	}
	return s
}

func (s *summary) count(c *v1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(s.restarted) {
		s.restarted = t.FinishedAt.Time
	}
}

// initWord says what holds initialization up. seen is called for each init container up to that one.
func initWord(pod *v1.Pod, sidecars map[string]bool, seen func(*v1.ContainerStatus)) (word string, initializing bool) {
	for i := range pod.Status.InitContainerStatuses {
		c := &pod.Status.InitContainerStatuses[i]
		seen(c)
		end := c.State.Terminated
		switch {
		case end != nil && end.ExitCode == 0:
		case sidecars[c.Name] && c.Started != nil && *c.Started:
		case end != nil:
			return "Init:" + endWord(end), true
		case c.State.Waiting != nil && c.State.Waiting.Reason != "" && c.State.Waiting.Reason != "PodInitializing":
			return "Init:" + c.State.Waiting.Reason, true
		default:
			return fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers)), true
		}
	}
	return "", false
}

// addContainers adds what the app containers say.
func (s *summary) addContainers(pod *v1.Pod) {
	running, trouble := false, ""
	for i := range slices.Backward(pod.Status.ContainerStatuses) {
		c := &pod.Status.ContainerStatuses[i]
		s.count(c)
		switch end := c.State.Terminated; {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.reason = c.State.Waiting.Reason
		case end != nil:
			s.reason = endWord(end)
			if end.ExitCode != 0 {
				trouble = s.reason
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.reason != "Completed" {
		return
	}
	switch {
	case running && isTrue(pod, v1.PodReady):
		s.reason = "Running"
	case trouble != "":
		s.reason = trouble
	case running:
		s.reason = "NotReady"
	}
}

func endWord(end *v1.ContainerStateTerminated) string {
	switch {
	case end.Reason != "":
		return end.Reason
	case end.Signal != 0:
		return fmt.Sprintf("Signal:%d", end.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", end.ExitCode)
	}
}

func isTrue(pod *v1.Pod, kind v1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == kind && c.Status == v1.ConditionTrue
	})
}
