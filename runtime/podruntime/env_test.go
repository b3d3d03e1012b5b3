package podruntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// store has objects, by "kind/namespace/name", and says which of them are followed.
type store struct {
	mu       sync.Mutex // guards the rest
	objects  map[string]any
	followed map[string][]func()
	fails    error
	reads    int
}

func newStore() *store { return &store{objects: map[string]any{}, followed: map[string][]func(){}} }

func read[T any](s *store, key string) (*T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	o, ok := s.objects[key].(*T)
	switch {
	case s.fails != nil:
		return nil, s.fails
	case !ok:
		return nil, fmt.Errorf("%s: %w", key, runtime.ErrNotFound)
	}
	return o, nil
}

func (s *store) ConfigMap(_ context.Context, namespace, name string) (*v1.ConfigMap, error) {
	return read[v1.ConfigMap](s, "ConfigMap/"+namespace+"/"+name)
}

func (s *store) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	return read[v1.Secret](s, "Secret/"+namespace+"/"+name)
}

func (s *store) Follow(kind, namespace, name string, changed func()) (stop func()) {
	key := kind + "/" + namespace + "/" + name
	s.mu.Lock()
	defer s.mu.Unlock()
	at := len(s.followed[key])
	s.followed[key] = append(s.followed[key], changed)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.followed[key][at] = nil
	}
}

// put changes an object and tells who follows it.
func (s *store) put(key string, o any) {
	s.mu.Lock()
	s.objects[key] = o
	told := s.followed[key]
	s.mu.Unlock()
	for _, changed := range told {
		if changed != nil {
			changed()
		}
	}
}

// follows are the objects that are followed, each as often as it is.
func (s *store) follows() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, all := range s.followed {
		for _, f := range all {
			if f != nil {
				out = append(out, key)
			}
		}
	}
	return out
}

func configMap(data ...string) *v1.ConfigMap {
	m := &v1.ConfigMap{Data: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		m.Data[data[i]] = data[i+1]
	}
	return m
}

func secret(data ...string) *v1.Secret {
	s := &v1.Secret{Data: map[string][]byte{}}
	for i := 0; i < len(data); i += 2 {
		s.Data[data[i]] = []byte(data[i+1])
	}
	return s
}

func service(namespace, name, ip string, ports ...string) *v1.Service {
	s := &v1.Service{}
	s.Namespace, s.Name, s.Spec.ClusterIP = namespace, name, ip
	for i := 0; i+1 < len(ports); i += 2 {
		p := v1.ServicePort{Name: ports[i]}
		port, protocol, _ := strings.Cut(ports[i+1], "/")
		n, _ := strconv.ParseInt(port, 10, 32)
		p.Port, p.Protocol = int32(n), v1.Protocol(protocol)
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	return s
}

// services answers from a list.
func services(all ...*v1.Service) func(context.Context, string) ([]*v1.Service, error) {
	return func(_ context.Context, namespace string) (out []*v1.Service, _ error) {
		for _, s := range all {
			if s.Namespace == namespace {
				out = append(out, s)
			}
		}
		return out, nil
	}
}

// environOf is the environment of a pod's container, one "NAME=value" a line.
func environOf(t *testing.T, cfg Config, p *v1.Pod, volumes map[string]runtime.Volume, f facts) string {
	t.Helper()
	m := &making{pod: p, spec: &p.Spec.Containers[0], in: runtime.SyncInput{Volumes: volumes}}
	e, err := environment(t.Context(), &cfg, m, f)
	if err != nil {
		return "error: " + err.Error()
	}
	var lines []string
	for _, v := range e.vars {
		lines = append(lines, v.Name+"="+v.Value)
	}
	return strings.Join(lines, "\n")
}

// container reads the fields of a container as a person writes them.
func container(t *testing.T, spec string) *v1.Pod {
	t.Helper()
	p := pod("sleep 100")
	c := &p.Spec.Containers[0]
	if err := yaml.Unmarshal([]byte(spec), c); err != nil {
		t.Fatal(err)
	}
	p.Spec.EnableServiceLinks = new(false)
	p.Spec.NodeName, p.Spec.ServiceAccountName = "node-1", "robot"
	return p
}

func TestEnvironment(t *testing.T) {
	s := newStore()
	s.objects["ConfigMap/shop/m"] = configMap("B", "from m", "A", "from m", "odd.key-1", "odd")
	s.objects["ConfigMap/shop/z"] = configMap("A", "from z")
	s.objects["Secret/shop/s"] = secret("A", "from s", "PASS", "hush")
	f := facts{ips: []string{"10.0.0.7", "fd00::7"}, hostIPs: []string{"192.0.2.9", "2001:db8::9"}, node: &v1.Node{}}
	f.node.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi")}
	for _, tt := range []struct{ rule, spec, want string }{
		{"whole objects come in order, and a later one wins", `envFrom: [{configMapRef: {name: m}}, {configMapRef: {name: z}}]`, "A=from z\nB=from m\nodd.key-1=odd"},
		{"a prefix goes before each name", `envFrom: [{prefix: X_, configMapRef: {name: z}}, {prefix: Y_, secretRef: {name: s}}]`, "X_A=from z\nY_A=from s\nY_PASS=hush"},
		{"env wins over envFrom", `{envFrom: [{configMapRef: {name: m}}], env: [{name: A, value: mine}]}`, "A=mine\nB=from m\nodd.key-1=odd"},
		{"a value refers to what stands before it", `env: [{name: X, value: "$(Y)"}, {name: "Y", value: "y"}, {name: Z, value: "$(Y) $$(Y) $(NO)"}]`, "X=$(Y)\nY=y\nZ=y $(Y) $(NO)"},
		{"and to envFrom", `{envFrom: [{configMapRef: {name: z}}], env: [{name: X, value: "$(A)"}]}`, "A=from z\nX=from z"},
		{"what comes from an object is not expanded", `env: [{name: A, value: a}, {name: X, valueFrom: {configMapKeyRef: {name: z, key: A}}}]`, "A=a\nX=from z"},
		{"a key of a secret", `env: [{name: X, valueFrom: {secretKeyRef: {name: s, key: PASS}}}]`, "X=hush"},
		{"a missing object", `envFrom: [{configMapRef: {name: none}}]`, `error: configmap "none" not found`},
		{"a missing secret", `env: [{name: X, valueFrom: {secretKeyRef: {name: none, key: k}}}]`, `error: secret "none" not found`},
		{"a missing key", `env: [{name: X, valueFrom: {configMapKeyRef: {name: z, key: k}}}]`, `error: couldn't find key k in ConfigMap shop/z`},
		{"a missing key of a secret", `env: [{name: X, valueFrom: {secretKeyRef: {name: s, key: k}}}]`, `error: couldn't find key k in Secret shop/s`},
		{"optional objects may be missing", `{envFrom: [{configMapRef: {name: none, optional: true}}, {secretRef: {name: none, optional: true}}],
			env: [{name: X, valueFrom: {configMapKeyRef: {name: none, key: k, optional: true}}}, {name: "Y", valueFrom: {secretKeyRef: {name: none, key: k, optional: true}}}, {name: Z, value: z}]}`, "Z=z"},
		{"optional keys may be missing", `env: [{name: X, valueFrom: {configMapKeyRef: {name: z, key: k, optional: true}}}, {name: "Y", valueFrom: {secretKeyRef: {name: s, key: k, optional: true}}}]`, ""},
		{
			"fields of the pod",
			`env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: B, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}, {name: C, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}},
				{name: D, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}, {name: E, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}, {name: F, valueFrom: {fieldRef: {fieldPath: status.podIPs}}},
				{name: G, valueFrom: {fieldRef: {fieldPath: status.hostIPs}}}, {name: H, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}]`,
			"A=web\nB=web\nC=node-1\nD=robot\nE=192.0.2.9\nF=10.0.0.7,fd00::7\nG=192.0.2.9,2001:db8::9\nH=u-1",
		},
		{"a field that there is not", `env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.containers}}}]`, `error: environment variable A: fieldRef: unknown field path "spec.containers"`},
		{
			"amounts are rounded up, and a limit that is not set is what the node has",
			`{resources: {requests: {cpu: 1500m, memory: 64Mi}, limits: {memory: 64Mi}}, env: [{name: A, valueFrom: {resourceFieldRef: {resource: requests.cpu}}},
				{name: B, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}, {name: C, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}, {name: D, valueFrom: {resourceFieldRef: {resource: requests.ephemeral-storage}}}]}`,
			"A=2\nB=64\nC=4\nD=0",
		},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if got := environOf(t, Config{Objects: s}, container(t, tt.spec), nil, f); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
	t.Run("each object is read once", func(t *testing.T) {
		before := s.reads
		spec := `{envFrom: [{configMapRef: {name: m}}], env: [{name: X, valueFrom: {configMapKeyRef: {name: m, key: A}}}, {name: "Y", valueFrom: {configMapKeyRef: {name: m, key: B}}}]}`
		environOf(t, Config{Objects: s}, container(t, spec), nil, f)
		if n := s.reads - before; n != 1 {
			t.Errorf("read %d times", n)
		}
	})
	t.Run("without a node's addresses nobody is told an empty one", func(t *testing.T) {
		got := environOf(t, Config{}, container(t, `env: [{name: A, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}]`), nil, facts{})
		if !strings.HasPrefix(got, "error: ") {
			t.Error(got)
		}
	})
}

func TestServiceVariables(t *testing.T) {
	cfg := Config{Services: services(
		service("default", "kubernetes", "10.0.0.1", "https", "443/TCP"),
		service("default", "other", "10.0.0.2", "", "80/TCP"),
		service("shop", "card-db", "10.0.0.3", "sql", "5432/TCP", "m-2", "9/UDP"),
		service("shop", "six", "fd00::3", "", "80/"),
		service("shop", "headless", "None", "", "80/TCP"),
		service("shop", "elsewhere", "", "", "80/TCP"),
		service("shop", "portless", "10.0.0.4"),
	)}
	const master = `KUBERNETES_SERVICE_HOST=10.0.0.1
KUBERNETES_SERVICE_PORT=443
KUBERNETES_SERVICE_PORT_HTTPS=443
KUBERNETES_PORT=tcp://10.0.0.1:443
KUBERNETES_PORT_443_TCP=tcp://10.0.0.1:443
KUBERNETES_PORT_443_TCP_PROTO=tcp
KUBERNETES_PORT_443_TCP_PORT=443
KUBERNETES_PORT_443_TCP_ADDR=10.0.0.1`
	const all = `CARD_DB_SERVICE_HOST=10.0.0.3
CARD_DB_SERVICE_PORT=5432
CARD_DB_SERVICE_PORT_SQL=5432
CARD_DB_SERVICE_PORT_M_2=9
CARD_DB_PORT=tcp://10.0.0.3:5432
CARD_DB_PORT_5432_TCP=tcp://10.0.0.3:5432
CARD_DB_PORT_5432_TCP_PROTO=tcp
CARD_DB_PORT_5432_TCP_PORT=5432
CARD_DB_PORT_5432_TCP_ADDR=10.0.0.3
CARD_DB_PORT_9_UDP=udp://10.0.0.3:9
CARD_DB_PORT_9_UDP_PROTO=udp
CARD_DB_PORT_9_UDP_PORT=9
CARD_DB_PORT_9_UDP_ADDR=10.0.0.3
` + master + `
SIX_SERVICE_HOST=fd00::3
SIX_SERVICE_PORT=80
SIX_PORT=tcp://[fd00::3]:80
SIX_PORT_80_TCP=tcp://[fd00::3]:80
SIX_PORT_80_TCP_PROTO=tcp
SIX_PORT_80_TCP_PORT=80
SIX_PORT_80_TCP_ADDR=fd00::3`
	p := container(t, `{}`)
	check := func(rule, want string) {
		t.Helper()
		if diff := cmp.Diff(want, environOf(t, cfg, p, nil, facts{})); diff != "" {
			t.Errorf("%s: %s", rule, diff)
		}
	}
	check("a pod that wants no links is told of the API server", master)
	p.Spec.EnableServiceLinks = new(true)
	check("one that wants them of all in its namespace", all)
	p.Spec.EnableServiceLinks = nil
	check("one that does not say wants them", all)

	p = container(t, `env: [{name: KUBERNETES_PORT, value: mine}, {name: API, value: "$(KUBERNETES_SERVICE_HOST) $(KUBERNETES_PORT)"}]`)
	check("what the container says wins, and may refer to services",
		"KUBERNETES_PORT=mine\nAPI=10.0.0.1 mine\n"+strings.Replace(master, "KUBERNETES_PORT=tcp://10.0.0.1:443\n", "", 1))

	own := service("shop", "kubernetes", "10.0.0.9", "", "1/TCP")
	cfg.Services = services(service("default", "kubernetes", "10.0.0.1", "https", "443/TCP"), own)
	p = container(t, `env: [{name: API, value: "$(KUBERNETES_SERVICE_HOST)"}]`)
	p.Spec.EnableServiceLinks = new(true)
	if got := environOf(t, cfg, p, nil, facts{}); !strings.HasPrefix(got, "API=10.0.0.9\n") {
		t.Errorf("a service of the own namespace that is named like the API server's: %s", got)
	}

	cfg.Services = func(context.Context, string) ([]*v1.Service, error) { return nil, runtime.ErrUnavailable }
	if got := environOf(t, cfg, p, nil, facts{}); !strings.HasPrefix(got, "error: ") {
		t.Errorf("before services are known: %s", got)
	}
	p.Annotations = map[string]string{podspec.SourceAnnotation: "file"}
	if got := environOf(t, cfg, p, nil, facts{}); got != "API=$(KUBERNETES_SERVICE_HOST)" {
		t.Errorf("a pod from a file waits for services: %s", got)
	}
}

func TestVariablesFromAFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("env", "A='1'\nE=''\n")
	write("broken", "A=1\n")
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	volumes := map[string]runtime.Volume{"data": {Path: dir}, "image": {Image: "x"}}
	for _, tt := range []struct{ volume, path, key, optional, want string }{
		{"data", "env", "A", "false", "X=1"},
		{"data", "env", "B", "false", `error: environment variable key "B" not found in file "` + dir + `/env"`},
		{"data", "env", "E", "false", `error: environment variable key "E" not found in file "` + dir + `/env"`},
		{"data", "env", "B", "true", ""},
		{"data", "none", "A", "true", "error: couldn't parse env file"},
		{"data", "broken", "A", "true", "error: couldn't parse env file"},
		{"data", "out", "root", "false", "error: couldn't parse env file"},
		{"data", "../x", "A", "false", "error: couldn't parse env file"},
		{"data", ".", "A", "false", "error: couldn't parse env file"},
		{"other", "env", "A", "true", `error: cannot find the volume "other" referenced by FileKeyRef`},
		{"image", "env", "A", "true", `error: cannot find the volume "image" referenced by FileKeyRef`},
	} {
		p := container(t, fmt.Sprintf(`env: [{name: X, valueFrom: {fileKeyRef: {volumeName: %s, path: %q, key: %s, optional: %s}}}]`, tt.volume, tt.path, tt.key, tt.optional))
		if got := environOf(t, Config{}, p, volumes, facts{}); got != tt.want {
			t.Errorf("%+v:\ngot  %s\nwant %s", tt, got, tt.want)
		}
	}
}

func TestEnvFile(t *testing.T) {
	for _, tt := range []struct{ rule, text, want string }{
		{"a value", "K='v'", "v"},
		{"the first one wins", "K='v'\nK='w'\n", "v"},
		{"what comes after it is not looked at", "K='v'\n=", "v"},
		{"others are passed over", "A='1'\nB= x\n\n \n# K='c'\n  K='v'", "v"},
		{"it goes on over lines", "A='x\ny'\nK='one\n  two#\n\nthree' # said", "one\n  two#\n\nthree"},
		{"nothing in it is special", `K='$(A) \n "'`, `$(A) \n "`},
		{"a comment follows", "K='v'\t#c", "v"},
		{"none", "A='1'", ""},
		{"an empty file", "", ""},
		{"a blank after = makes it empty", "K= 'v'", ""},
		{"windows line ends", "K='v'\r\n", "v"},
		{"no =", "A", "error"},
		{"no name", "='v'", "error"},
		{"a blank before =", "A ='v'", "error"},
		{"no quotes", "A=v", "error"},
		{"double quotes", `A="v"`, "error"},
		{"nothing", "A=", "error"},
		{"no end", "K='v\n", "error"},
		{"something after it", "K='v'x", "error"},
	} {
		got, err := envFileValue(strings.NewReader(tt.text), "K")
		if err != nil {
			got = "error"
		}
		if got != tt.want {
			t.Errorf("%s: got %q (%v), want %q", tt.rule, got, err, tt.want)
		}
	}
}

func FuzzEnvFile(f *testing.F) {
	f.Add("K='v'\n# c\nA= x\n", "K")
	f.Add("K='a\nb' # c", "K")
	f.Fuzz(func(t *testing.T, text, key string) {
		value, err := envFileValue(strings.NewReader(text), key)
		if err != nil && value != "" {
			t.Errorf("%q beside error %v", value, err)
		}
		if strings.Contains(value, "'") {
			t.Errorf("a quote in %q", value)
		}
	})
}

// TestCase_c085 holds environment and hosts file to the order of addresses that the status has.
func TestCase_c085_environment_has_the_nodes_family_first(t *testing.T) {
	for _, tt := range []struct {
		ips, hosts []string
		want       string
	}{
		{[]string{"fd00::7", "10.0.0.7"}, []string{"192.0.2.9", "2001:db8::9"}, "10.0.0.7,fd00::7"},
		{[]string{"10.0.0.7", "fd00::7"}, []string{"2001:db8::9"}, "fd00::7,10.0.0.7"},
		{[]string{"fd00::7", "10.0.0.7", "10.0.0.8"}, nil, "10.0.0.7,fd00::7"},
		{[]string{"fd00::7"}, []string{"192.0.2.9"}, "fd00::7"},
		{nil, []string{"192.0.2.9"}, ""},
	} {
		if got := strings.Join(inOrder(tt.ips, tt.hosts), ","); got != tt.want {
			t.Errorf("%v on %v: got %s, want %s", tt.ips, tt.hosts, got, tt.want)
		}
	}
}

// wanting is a node with a pod of which container a wants key k of ConfigMap m.
func wanting(t *testing.T) (*node, *store, *v1.Pod) {
	t.Helper()
	s := newStore()
	n := newNode(t, func(c *Config) { c.Objects = s })
	p := pod("sleep 100")
	p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "X", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "m"}, Key: "k"}}}}
	n.sync(p)
	return n, s, p
}

func TestAMissingObjectHealsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s, p := wanting(t)
		waits := func(message string) {
			t.Helper()
			if w := n.look(p).Waiting["a"]; w.Reason != "CreateContainerConfigError" || w.Message != message {
				t.Errorf("waits: %+v, want %s", w, message)
			}
		}
		followed := func(want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, s.follows()); diff != "" {
				t.Errorf("followed: %s", diff)
			}
		}
		waits(`configmap "m" not found`)
		followed("ConfigMap/shop/m")

		time.Sleep(3 * time.Second)
		before := n.wakes.Load()
		s.put("ConfigMap/shop/m", configMap("other", "1"))
		if n.wakes.Load() == before {
			t.Error("nobody was woken")
		}
		n.sync(p)
		waits("couldn't find key k in ConfigMap shop/m")
		followed("ConfigMap/shop/m")

		// A change right after a failure waits a moment.
		s.put("ConfigMap/shop/m", configMap("k", "v"))
		_, result := n.sync(p)
		if wait := time.Until(result.RetryAt); wait != settle {
			t.Errorf("tried again after %v", wait)
		}
		time.Sleep(settle)
		n.sync(p)
		seen := n.look(p)
		if c := seen.Newest("a"); c == nil || c.State != runtime.Running || len(seen.Waiting) > 0 {
			t.Errorf("it does not run: %+v", seen)
		}
		followed()
	})
}

func TestAnObjectThatChangesAllTheTimeCostsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s, p := wanting(t)
		before := s.reads
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			s.put("ConfigMap/shop/m", configMap("other", "1"))
			n.sync(p)
		}
		if reads := s.reads - before; reads > 11 {
			t.Errorf("read %d times in ten seconds", reads)
		}
		if got := len(s.follows()); got != 1 {
			t.Errorf("followed %d times", got)
		}
	})
}

func TestNothingIsFollowedThatNobodyNeeds(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, n *node, s *store, p *v1.Pod){
		"it is stopped": func(t *testing.T, n *node, _ *store, p *v1.Pod) {
			t.Helper()
			if err := n.Stop(t.Context(), p, n.look(p), runtime.Termination{}); err != nil {
				t.Fatal(err)
			}
		},
		"it is purged": func(t *testing.T, n *node, _ *store, p *v1.Pod) {
			t.Helper()
			if err := n.Remove(t.Context(), p.UID, runtime.Purge); err != nil {
				t.Fatal(err)
			}
		},
		"it is swept": func(t *testing.T, n *node, _ *store, p *v1.Pod) {
			t.Helper()
			for _, s := range n.look(p).Sandboxes {
				if err := n.removeSandbox(t.Context(), s.ID); err != nil {
					t.Fatal(err)
				}
			}
			if err := n.Sweep(t.Context(), func(types.UID) bool { return false }); err != nil {
				t.Fatal(err)
			}
		},
		"its spec is mended": func(_ *testing.T, n *node, _ *store, p *v1.Pod) {
			p = p.DeepCopy()
			p.Spec.Containers[0].Env = nil
			n.sync(p)
		},
		"something else fails": func(_ *testing.T, n *node, _ *store, p *v1.Pod) {
			p = p.DeepCopy()
			p.Spec.Containers[0].Image = "nowhere/none:1"
			n.sync(p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, s, p := wanting(t)
				if len(s.follows()) != 1 {
					t.Fatalf("followed: %v", s.follows())
				}
				end(t, n, s, p)
				if left := s.follows(); len(left) > 0 {
					t.Errorf("followed still: %v", left)
				}
			})
		})
	}
}

func TestAnotherObjectTakesThePlaceOfTheOneThatCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s, p := wanting(t)
		p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env,
			v1.EnvVar{Name: "Y", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "s"}, Key: "k"}}})
		time.Sleep(settle)
		s.put("ConfigMap/shop/m", configMap("k", "v"))
		n.sync(p)
		if diff := cmp.Diff([]string{"Secret/shop/s"}, s.follows()); diff != "" {
			t.Error(diff)
		}
		s.fails = errors.New("the API server is away")
		time.Sleep(retryAfter)
		n.sync(p)
		if w := n.look(p).Waiting["a"]; w.Message != "the API server is away" {
			t.Errorf("%+v", w)
		}
		if len(s.follows()) != 1 {
			t.Errorf("an object that cannot be read is followed as well: %v", s.follows())
		}
	})
}

func TestAnUnknownRuntimeClassIsToldAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := false
		var told []observe.Event
		n := newNode(t, func(c *Config) {
			c.Classes = func(name string) (string, error) {
				if known {
					return "", nil
				}
				return "", fmt.Errorf("class %s: %w", name, runtime.ErrNotFound)
			}
			c.Observe.Events = events(func(e observe.Event) { told = append(told, e) })
		})
		p := pod("sleep 100")
		p.Spec.RuntimeClassName = new("turbo")
		_, err := n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)})
		if err == nil || len(told) != 1 || told[0].Reason != "FailedCreatePodSandBox" ||
			told[0].Message != `Failed to create pod sandbox: runtimeclass.node.k8s.io "turbo" not found` {
			t.Errorf("%v %+v", err, told)
		}
		_, result := n.sync(p)
		if len(told) != 1 {
			t.Errorf("tried again at once: %+v", told)
		}
		known = true
		time.Sleep(time.Until(result.RetryAt))
		n.sync(p)
		if c := n.look(p).Newest("a"); c == nil || c.State != runtime.Running {
			t.Error("it does not run once the class is there")
		}
	})
}

// A class may be deleted, or be unknown to an agent that has just started: what runs in its sandbox needs it no more.
func TestASandboxNeedsItsRuntimeClassOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := true
		n := newNode(t, func(c *Config) {
			c.Classes = func(string) (string, error) {
				if known {
					return "micro", nil
				}
				return "", runtime.ErrNotFound
			}
		})
		n.engine.SetInfo(runtime.Info{Network: runtime.Condition{OK: true}, Handlers: []runtime.Handler{{}, {Name: "micro", UserNamespaces: true}}})
		p := pod("sleep 100")
		p.Spec.RuntimeClassName, p.Spec.HostUsers = new("turbo"), new(false)
		n.sync(p)
		known = false
		if err := n.engine.Exit(n.engine.Newest(p.UID, "a"), 1); err != nil {
			t.Fatal(err)
		}
		n.sync(p)
		if c := n.look(p).Newest("a"); c == nil || c.State != runtime.Running || c.Restarts != 1 {
			t.Errorf("it was not started again: %+v %v", c, n.look(p).Waiting)
		}
		n.engine.EndSandbox(n.look(p).Sandboxes[0].ID)
		if _, err := n.Sync(t.Context(), p, runtime.SyncInput{Seen: n.look(p)}); err == nil {
			t.Error("another sandbox was made without the class")
		}
	})
}

// events is a function as receiver of events.
type events func(observe.Event)

func (f events) Event(e observe.Event) { f(e) }
