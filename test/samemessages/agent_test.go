package samemessages

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/apifake"
	"github.com/kubeletkit/kubeletkit/internal/asuser"
	"github.com/kubeletkit/kubeletkit/internal/podcases"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest"
	"github.com/kubeletkit/kubeletkit/runtime/runtimetest/criserver"
	"github.com/kubeletkit/kubeletkit/test/internal/cgroups"
)

const node = "node"

// stage is one agent with a runtime and an API server of its own, all in a directory.
type stage struct {
	t       *testing.T
	program string
	flags   []string // more than all have
	dir     string
	api     *apifake.Server
	record  *podcases.Recorder
	engine  *runtimetest.Engine
	cgroup  string // in which those of its pods lie
	port    int    // where the agent serves
	client  *http.Client
	process *os.Process
	ended   chan struct{} // closed when the process has ended
}

// setUp starts an agent, with flags beside those that all have.
func setUp(t *testing.T, program string, settings map[string]any, cases []*podcases.Case, flags ...string) *stage {
	t.Helper()
	s := &stage{t: t, program: program, flags: flags, dir: t.TempDir(), api: apifake.New(), record: new(podcases.Recorder), port: asuser.FreePort(t)}
	s.client = &http.Client{
		Timeout: 4 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}, // it signs itself
	}
	t.Cleanup(s.api.Close)
	for _, d := range []string{"root", "logs", "certificates", "manifests"} {
		must(t, os.Mkdir(s.path(d), 0o755))
	}
	s.makeCgroup()
	s.serveRuntime(cases)
	port := s.serveAPI(cases)
	s.writeConfigs(port, settings)
	t.Cleanup(s.cleanUp)
	s.start()
	return s
}

func (s *stage) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// makeCgroup makes a cgroup for this agent's pods alone.
func (s *stage) makeCgroup() {
	s.cgroup = fmt.Sprintf("%s/%x", cgroups.Of("samemessages"), rand.Uint64())
	must(s.t, cgroups.Make(s.cgroup))
	s.t.Cleanup(func() {
		if err := cgroups.Remove(context.Background(), s.cgroup); err != nil {
			s.t.Error(err)
		}
		cgroups.Spare(cgroups.Of("samemessages"))
	})
}

// serveRuntime serves a runtime in which init containers end at once, and everything else runs.
func (s *stage) serveRuntime(cases []*podcases.Case) {
	s.engine = runtimetest.New(podcases.Images()...)
	s.engine.Remote(podcases.Images()...)
	s.engine.SetInfo(runtime.Info{
		Name: "memory", Version: "1.0", Ready: runtime.Condition{OK: true}, Network: runtime.Condition{OK: true}, CgroupDriver: "cgroupfs",
		GroupsPolicy: true,
		Handlers:     []runtime.Handler{{RecursiveRO: true, UserNamespaces: true}, {Name: "micro"}},
	})
	inits := map[string]bool{}
	for _, c := range cases {
		for _, i := range c.Pod.Spec.InitContainers {
			if i.RestartPolicy == nil || *i.RestartPolicy != v1.ContainerRestartPolicyAlways {
				inits[c.Pod.Name+"/"+i.Name] = true
			}
		}
	}
	s.engine.Behave = func(c *runtime.ContainerConfig) runtimetest.Behavior {
		if inits[c.Pod.Name+"/"+c.Name] {
			return runtimetest.Behavior{Exits: true}
		}
		return runtimetest.Behavior{}
	}
	server := criserver.New(s.engine, grpc.UnaryInterceptor(s.record.Intercept))
	listener, err := net.Listen("unix", s.path("cri.sock"))
	must(s.t, err)
	go func() { _ = server.Serve(listener) }() // it ends by Stop
	s.t.Cleanup(server.Stop)
}

// playScripts has containers with a script of a shell do what it says, and write logs.
func (s *stage) playScripts() {
	s.engine.Logs = true
	does := s.engine.Behave
	s.engine.Behave = func(c *runtime.ContainerConfig) runtimetest.Behavior {
		if len(c.Command) > 0 && c.Command[0] == "sh" {
			return runtimetest.Shell(c)
		}
		return does(c)
	}
}

// serveAPI serves the objects of the cases, but not yet their pods.
func (s *stage) serveAPI(cases []*podcases.Case) (address string) {
	for _, ns := range []string{"default", "kube-system", "kube-node-lease"} {
		s.api.Put(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}
	for _, c := range cases {
		for _, o := range c.Maps {
			s.api.Put(o)
		}
		for _, o := range c.Secrets {
			s.api.Put(o)
		}
		for _, o := range c.Service {
			s.api.Put(o)
		}
		for _, o := range c.Classes {
			s.api.Put(o)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(s.t, err)
	web := &http.Server{Handler: s.api, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = web.Serve(listener) }() // it ends by Close
	s.t.Cleanup(func() { web.Close() })
	return listener.Addr().String()
}

func (s *stage) writeConfigs(api string, settings map[string]any) {
	must(s.t, os.WriteFile(s.path("resolv.conf"), []byte("nameserver 192.0.2.1\nsearch host.example.invalid\noptions timeout:3\n"), 0o644))
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + s.path("cri.sock"), "podLogsDir": s.path("logs"), "resolvConf": s.path("resolv.conf"),
		"address": "127.0.0.1", "port": s.port, "healthzPort": 0,
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":  map[string]any{"mode": "AlwaysAllow"},
		"clusterDNS":     []string{"192.0.2.53"}, "clusterDomain": "cluster.example.invalid",
		"maxPods": 400, "serializeImagePulls": false, "registryPullQPS": 0, "eventRecordQPS": 0, "allowedUnsafeSysctls": []string{"net.core.somaxconn"},
		"cgroupDriver": "cgroupfs", "cgroupRoot": s.cgroup, "enforceNodeAllocatable": []string{}, "makeIPTablesUtilChains": false,
		"staticPodPath": s.path("manifests"),
		"failCgroupV1":  false, "failSwapOn": false, "imageGCHighThresholdPercent": 99, "imageGCLowThresholdPercent": 98,
		"evictionHard": map[string]string{"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
	}
	maps.Copy(config, settings)
	s.writeJSON("config.json", config)
	s.writeJSON("kubeconfig", map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": "http://" + api}}},
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u"}}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"token": "none asks for it"}}},
	})
}

func (s *stage) writeJSON(name string, v any) {
	data, err := json.Marshal(v)
	must(s.t, err)
	must(s.t, os.WriteFile(s.path(name), data, 0o600))
}

// start starts a process of the agent.
func (s *stage) start() {
	log, err := os.OpenFile(s.path("agent.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	must(s.t, err)
	defer log.Close()
	cmd := exec.Command(s.program, append([]string{
		"--config=" + s.path("config.json"), "--root-dir=" + s.path("root"), "--cert-dir=" + s.path("certificates"),
		"--hostname-override=" + node, "--kubeconfig=" + s.path("kubeconfig"), "--node-ip=" + address(s.t), "--v=2",
	}, s.flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	must(s.t, cmd.Start())
	ended := make(chan struct{})
	s.process, s.ended = cmd.Process, ended
	go func() {
		_ = cmd.Wait() // its log says how
		close(ended)
	}()
}

// kill ends the process, which gets no word in.
func (s *stage) kill() {
	if s.process == nil {
		return
	}
	_ = s.process.Kill() // it may have ended
	<-s.ended
}

func (s *stage) cleanUp() {
	s.kill()
	text, _ := os.ReadFile(s.path("agent.log"))
	if s.t.Failed() {
		s.t.Logf("the end of the log of %s:\n%s", s.program, text[max(0, len(text)-4000):])
	}
	if *keep != "" {
		must(s.t, os.MkdirAll(*keep, 0o755))
		must(s.t, os.WriteFile(filepath.Join(*keep, filepath.Base(s.program)+".log"), text, 0o644))
	}
	unmountBelow(s.t, s.path("root"))
}

// unmountBelow undoes the mounts of volumes, which the pods of a killed agent keep.
func unmountBelow(t *testing.T, dir string) {
	t.Helper()
	for range 3 { // mounts within mounts
		for _, m := range slices.Backward(mountsBelow(t, dir)) {
			_ = syscall.Unmount(m, syscall.MNT_DETACH) // tried again
		}
	}
}

func mountsBelow(t *testing.T, dir string) (list []string) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	for line := range bytesLines(data) {
		if len(line) > 4 && within(line[4], dir) {
			list = append(list, line[4])
		}
	}
	return list
}

// give creates the pods, those from files by a manifest.
func (s *stage) give(cases []*podcases.Case) {
	for _, c := range cases {
		pod := c.Pod.DeepCopy()
		if fromFile(c) {
			pod.Name, pod.UID, pod.Spec.ServiceAccountName = strings.TrimSuffix(pod.Name, "-"+node), "", ""
			s.writeJSON("manifests/."+c.Name, pod)
			must(s.t, os.Rename(s.path("manifests", "."+c.Name), s.path("manifests", c.Name+".json")))
			continue
		}
		pod.Spec.NodeName = node
		s.api.Put(pod)
	}
}

// asFiles are some cases once more, as pods from files.
func asFiles(cases []*podcases.Case) (files []*podcases.Case) {
	for _, c := range cases {
		switch c.Name {
		case "smallest", "m01-control-plane", "m05-keepalived", "m13-sidecars", "m24-names", "m30-many-containers", "critical", "pod-level-only", "user-namespace":
			file := *c
			file.Name = "file-" + c.Name
			file.Pod = c.Pod.DeepCopy()
			file.Pod.Name, file.Pod.UID = file.Name+"-"+node, types.UID(file.Name)
			file.Pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
			for _, list := range [][]v1.Container{file.Pod.Spec.InitContainers, file.Pod.Spec.Containers} {
				for i := range list {
					for j := range list[i].Ports {
						list[i].Ports[j].HostPort, list[i].Ports[j].ContainerPort = 0, list[i].Ports[j].ContainerPort+10000
					}
				}
			}
			files = append(files, &file)
		}
	}
	return files
}

func fromFile(c *podcases.Case) bool { return strings.HasPrefix(c.Name, "file-") }

// wait waits until each pod has all its containers, or says why it will not; it returns the reasons of those.
func (s *stage) wait(ctx context.Context, cases []*podcases.Case) map[string]string {
	refused := map[string]string{}
	deadline := time.Now().Add(5 * time.Minute)
	for {
		var missing []string
		for _, c := range cases {
			if why := s.refusal(c); why != "" {
				refused[c.Name] = why
				continue
			}
			delete(refused, c.Name)
			if made := s.record.Containers(c.Pod.Namespace, c.Pod.Name); len(made) < count(c.Pod) {
				missing = append(missing, fmt.Sprintf("%s (only %v)", c.Name, made))
			}
		}
		if len(missing) == 0 {
			return refused
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			s.t.Errorf("these pods did not come to be: %v", missing)
			return refused
		}
		select {
		case <-s.ended:
			s.t.Error("the agent has ended")
			return refused
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func count(p *v1.Pod) int {
	return len(p.Spec.InitContainers) + len(p.Spec.Containers) + len(p.Spec.EphemeralContainers)
}

// refusal is why a pod, or a container of it, is not made.
func (s *stage) refusal(c *podcases.Case) string {
	pod, ok := apifake.Get(s.api, c.Pod)
	if !ok {
		return ""
	}
	for _, e := range apifake.All[*v1.Event](s.api) {
		if e.InvolvedObject.UID == c.Pod.UID && e.Reason == "FailedCreatePodSandBox" {
			return e.Reason + ": " + e.Message
		}
	}
	if pod.Status.Phase == v1.PodFailed {
		return pod.Status.Reason + ": " + pod.Status.Message
	}
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, cs := range list {
			if w := cs.State.Waiting; w != nil && w.Reason == "CreateContainerConfigError" {
				return w.Reason + ": " + w.Message
			}
		}
	}
	return ""
}

func address(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	must(t, err)
	for _, a := range all {
		if n, is := a.(*net.IPNet); is && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but loopback")
	return ""
}
