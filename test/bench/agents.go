package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// nodeName is the node of an agent on a runtime in memory.
const nodeName = "node"

// stage is an agent on a runtime in memory, in a directory.
type stage struct {
	dir     string
	agent   string // a column of the table
	program string
	api     string // address of the API server; empty: the agent knows none

	door
	fakes   *proc
	now     *proc // the agent's process
	started time.Time
	cluster kubernetes.Interface
}

// setUp makes the directory and starts the fakes. The agent is not started.
func setUp(ctx context.Context, self, agent, program string, member bool) (*stage, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir, agent: agent, program: program, door: doorOf(filepath.Join(dir, "root"), 0)}
	if s.port, err = freePort(ctx); err != nil {
		return s, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return s, err
	}
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if member {
		s.api = at
		if s.cluster, err = kubernetes.NewForConfig(&rest.Config{Host: "http://" + at, QPS: 1000, Burst: 1000, UserAgent: own}); err != nil {
			return s, err
		}
	}
	for _, d := range []string{"manifests", "root", "logs", "certificates"} {
		if err := os.Mkdir(s.path(d), 0o755); err != nil {
			return s, err
		}
	}
	if err := s.writeConfig(); err != nil {
		return s, err
	}
	if s.fakes, err = start(s.path("fakes.log"), self, "serve", "-socket", s.path("cri.sock"), "-api", at); err != nil {
		return s, err
	}
	return s, until(ctx, time.Minute, func() error {
		if err := s.fakes.runs(); err != nil {
			return err
		}
		_, err := os.Stat(s.path("cri.sock"))
		return err
	})
}

// tearDown ends what runs and removes the directory.
func (s *stage) tearDown() {
	for _, p := range []*proc{s.now, s.fakes} {
		if p != nil {
			p.stop(syscall.SIGKILL)
		}
	}
	_ = os.RemoveAll(s.dir)
}

func (s *stage) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// writeConfig writes what both agents read. Pods have no cgroups of their own: there are no processes.
func (s *stage) writeConfig() error {
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + s.path("cri.sock"), "podLogsDir": s.path("logs"),
		"address": "127.0.0.1", "port": s.port, "healthzPort": 0,
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":  map[string]any{"mode": "AlwaysAllow"},
		"maxPods":        4000, "resolvConf": "", "serializeImagePulls": false, "registryPullQPS": 0, "eventRecordQPS": 0,
		"cgroupDriver": "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": []string{}, "makeIPTablesUtilChains": false,
		"failCgroupV1": false, "failSwapOn": false, "imageGCHighThresholdPercent": 99, "imageGCLowThresholdPercent": 98,
		"evictionHard": map[string]string{"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
	}
	if s.api == "" {
		config["staticPodPath"] = s.path("manifests")
	}
	if err := writeJSON(s.path("config.json"), config); err != nil || s.api == "" {
		return err
	}
	return writeJSON(s.path("kubeconfig"), map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": "http://" + s.api}}},
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u"}}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"token": "none asks for it"}}},
	})
}

func writeJSON(file string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o600)
}

// start starts the agent and waits until it answers.
func (s *stage) start(ctx context.Context) error {
	args := []string{
		"--config=" + s.path("config.json"), "--root-dir=" + s.path("root"), "--cert-dir=" + s.path("certificates"),
		"--hostname-override=" + nodeName, "--v=1",
	}
	if s.api != "" {
		ip, err := address()
		if err != nil {
			return err
		}
		args = append(args, "--kubeconfig="+s.path("kubeconfig"), "--node-ip="+ip)
	}
	var err error
	s.started = time.Now()
	if s.now, err = start(s.path("agent.log"), s.program, args...); err != nil {
		return err
	}
	return until(ctx, time.Minute, func() error {
		if err := s.now.runs(); err != nil {
			return final{err}
		}
		_, err := s.ask(ctx, "/healthz")
		return err
	})
}

// address is one of this machine that may be a node's.
func address() (string, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, a := range all {
		if n, is := a.(*net.IPNet); is && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String(), nil
		}
	}
	return "", errors.New("find an address for the node: this machine has none but loopback")
}

// ready is how many pods are told to be ready.
func (s *stage) ready(ctx context.Context) (count int, err error) {
	list := new(v1.PodList)
	if s.cluster != nil {
		if list, err = s.cluster.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); err != nil {
			return 0, err
		}
	} else {
		body, err := s.ask(ctx, "/pods")
		if err != nil {
			return 0, err
		}
		if err := json.Unmarshal(body, list); err != nil {
			return 0, fmt.Errorf("decode /pods: %w", err)
		}
	}
	for i := range list.Items {
		if isReady(&list.Items[i]) {
			count++
		}
	}
	return count, nil
}

func isReady(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

// requests is how many requests the agent has made to the API server.
func (s *stage) requests(ctx context.Context) (float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.api+"/requests", http.NoBody)
	if err != nil {
		return 0, err
	}
	a, err := s.web.Do(r)
	if err != nil {
		return 0, err
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(string(body), 64)
}

// pod is one of those on a runtime in memory.
func pod(name string) *v1.Pod {
	grace, no := int64(1), false
	return &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: &grace, EnableServiceLinks: &no, NodeName: nodeName, RestartPolicy: v1.RestartPolicyAlways,
			DNSPolicy: v1.DNSDefault, SecurityContext: &v1.PodSecurityContext{}, SchedulerName: "default-scheduler",
			Containers: []v1.Container{{
				Name: "app", Image: image, ImagePullPolicy: v1.PullIfNotPresent, Args: []string{"wait"},
				TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
			}},
		},
	}
}

// create has the agent run a pod.
func (s *stage) create(ctx context.Context, name string) error {
	if s.cluster != nil {
		_, err := s.cluster.CoreV1().Pods("default").Create(ctx, pod(name), metav1.CreateOptions{})
		return err
	}
	p := pod(name)
	p.Spec.NodeName = ""
	hidden := s.path("manifests", "."+name)
	if err := writeJSON(hidden, p); err != nil {
		return err
	}
	return os.Rename(hidden, s.path("manifests", name+".json"))
}

// remove has the agent end it.
func (s *stage) remove(ctx context.Context, name string) error {
	if s.cluster != nil {
		return s.cluster.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{})
	}
	return os.Remove(s.path("manifests", name+".json"))
}

// freePort is one nobody listens on, outside the range that outgoing connections take theirs from.
func freePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	for range 100 {
		port := 20000 + rand.IntN(10000)
		l, err := config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("find a free port: none of a hundred is")
}

// final wraps an error that another try cannot mend.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// until tries again and again, at most for a time.
func until(ctx context.Context, limit time.Duration, ok func() error) error {
	for deadline := time.Now().Add(limit); ; {
		err := ok()
		if err == nil {
			return nil
		}
		if _, is := errors.AsType[final](err); is || time.Now().After(deadline) {
			return fmt.Errorf("not within %s: %w", limit, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
