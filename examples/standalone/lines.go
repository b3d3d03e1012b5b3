package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// lines is where statuses go: a line for each pod that looks different from before.
type lines struct {
	out io.Writer

	mu   sync.Mutex // guards last
	last map[types.UID]string
}

func newLines(out io.Writer) *lines { return &lines{out: out, last: map[types.UID]string{}} }

func (l *lines) UpdateStatus(_ context.Context, pod *v1.Pod, s v1.PodStatus) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if text := describe(pod, s); text != l.last[pod.UID] {
		l.last[pod.UID] = text
		l.print(pod, text)
	}
	return nil
}

func (l *lines) Finished(_ context.Context, pod *v1.Pod) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.last, pod.UID)
	l.print(pod, "has ended")
	return nil
}

func (l *lines) print(pod *v1.Pod, text string) {
	fmt.Fprintf(l.out, "%s  %-24s %s\n", time.Now().Format(time.TimeOnly), pod.Namespace+"/"+pod.Name, text)
}

// describe is how a pod is, in one line.
func describe(pod *v1.Pod, s v1.PodStatus) string {
	ready, restarts := 0, int32(0)
	var why []string
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		restarts += c.RestartCount
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			why = append(why, c.Name+" "+c.State.Waiting.Reason+because(c))
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
			why = append(why, c.Name+after(c.State.Terminated))
		}
	}
	for _, c := range s.ContainerStatuses {
		if c.Ready {
			ready++
		}
	}
	text := fmt.Sprintf("%-10s %d/%d ready", s.Phase, ready, len(pod.Spec.Containers))
	if restarts > 0 {
		text += fmt.Sprintf(", restarts: %d", restarts)
	}
	if s.Reason != "" {
		why = append(why, s.Reason+": "+s.Message)
	}
	if len(why) > 0 {
		text += " (" + strings.Join(why, "; ") + ")"
	}
	return text
}

// because is why a container waits: what it ended with, or what keeps it from starting.
func because(c v1.ContainerStatus) string {
	if t := c.LastTerminationState.Terminated; t != nil {
		return after(t)
	}
	if m := c.State.Waiting.Message; m != "" {
		return ": " + m
	}
	return ""
}

// after is how a container ended the last time.
func after(t *v1.ContainerStateTerminated) string {
	text := fmt.Sprintf(" after exit code %d", t.ExitCode)
	if t.Message != "" {
		text += fmt.Sprintf(" %q", strings.TrimSpace(t.Message))
	}
	return text
}
