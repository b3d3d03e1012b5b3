package chaos

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// A kind is a way for a pod to behave.
type kind struct {
	name string
	ends v1.PodPhase // how it ends by itself; empty: it does not
	text string
}

const (
	demo    = `image: "kubeletkit.dev/demo:1", imagePullPolicy: IfNotPresent, env: [{name: REVISION, value: "%[2]d"}]`
	busybox = `image: "registry.k8s.io/e2e-test-images/busybox:1.37.0-2", imagePullPolicy: IfNotPresent, env: [{name: REVISION, value: "%[2]d"}]`
	head    = "apiVersion: v1\nkind: Pod\nmetadata: {name: %[1]s}\nspec:\n"
)

// services are kinds of pods that go on until they are deleted.
var services = []kind{
	{name: "plain", text: head + `
  terminationGracePeriodSeconds: 5
  containers:
  - {name: app, ` + demo + `, args: [wait]}
`},
	{name: "pair", text: head + `
  terminationGracePeriodSeconds: 5
  containers:
  - {name: app, ` + busybox + `, command: [sh, -c, 'trap "exit 0" TERM; while sleep 0.1; do :; done']}
  - {name: other, ` + demo + `, args: [wait]}
`},
	{name: "web", text: head + `
  terminationGracePeriodSeconds: 5
  containers:
  - name: app
    ` + lines(demo) + `
    args: [web, --port=8080, --warm-up=500ms]
    startupProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, failureThreshold: 30}
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
    livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, failureThreshold: 5}
`},
	{name: "init", text: head + `
  terminationGracePeriodSeconds: 5
  initContainers:
  - {name: first, ` + demo + `, args: [job, --lines=2, --every=150ms]}
  - {name: second, ` + busybox + `, command: ["true"]}
  containers:
  - {name: app, ` + demo + `, args: [wait]}
`},
	{name: "sidecar", text: head + `
  terminationGracePeriodSeconds: 5
  initContainers:
  - {name: side, ` + demo + `, args: [wait], restartPolicy: Always}
  - {name: first, ` + demo + `, args: [job, --lines=2, --every=200ms]}
  containers:
  - {name: app, ` + busybox + `, command: [sh, -c, 'trap "exit 0" TERM; while sleep 0.1; do :; done'], lifecycle: {preStop: {exec: {command: [sleep, "0.5"]}}}}
`},
	{name: "crash", text: head + `
  terminationGracePeriodSeconds: 5
  containers:
  - {name: app, ` + demo + `, args: [crash, --after=300ms]}
  - {name: other, ` + demo + `, args: [wait]}
`},
	{name: "sick", text: head + `
  terminationGracePeriodSeconds: 1
  containers:
  - {name: app, ` + busybox + `, command: [sleep, "1000"], livenessProbe: {exec: {command: ["false"]}, periodSeconds: 1, failureThreshold: 2}}
`},
	{name: "slow", text: head + `
  terminationGracePeriodSeconds: 10
  containers:
  - {name: app, ` + demo + `, args: [wait, --delay=3s]}
`},
	{name: "stubborn", text: head + `
  terminationGracePeriodSeconds: 2
  containers:
  - {name: app, ` + busybox + `, command: [sh, -c, 'trap "" TERM; while sleep 0.1; do :; done']}
`},
}

// jobs are kinds of pods that end by themselves.
var jobs = []kind{
	{name: "done", ends: v1.PodSucceeded, text: head + `
  restartPolicy: OnFailure
  containers:
  - {name: app, ` + demo + `, args: [job, --lines=3, --every=200ms]}
`},
	{name: "failed", ends: v1.PodFailed, text: head + `
  restartPolicy: Never
  containers:
  - {name: once-app, ` + demo + `, args: [job, --lines=3, --every=200ms, --code=3]}
`},
	{name: "never", ends: v1.PodSucceeded, text: head + `
  restartPolicy: Never
  initContainers:
  - {name: once-first, ` + busybox + `, command: ["true"]}
  containers:
  - {name: once-app, ` + demo + `, args: [job, --lines=2, --every=100ms]}
  - {name: once-other, ` + demo + `, args: [job, --lines=4, --every=100ms]}
`},
}

// manifest is the text of a pod. Another revision is another pod of the same name.
func (k kind) manifest(name string, revision int) string {
	return strings.TrimSpace(fmt.Sprintf(k.text, name, revision)) + "\n"
}

// lines turns fields of a flow mapping into lines of a block.
func lines(fields string) string {
	return strings.Replace(strings.Replace(fields, ", imagePullPolicy", "\n    imagePullPolicy", 1), ", env", "\n    env", 1)
}

func kindNamed(name string) kind {
	for _, k := range append(services, jobs...) {
		if k.name == name {
			return k
		}
	}
	panic("there is no kind " + name)
}
