package podprobe_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/probe"
	"github.com/kubeletkit/kubeletkit/probe/podprobe"
)

func TestHTTPTarget(t *testing.T) {
	ports := []v1.ContainerPort{{Name: "web", ContainerPort: 8080}, {Name: "big", ContainerPort: 70000}}
	for _, c := range []struct {
		name, ip string
		get      v1.HTTPGetAction
		want     string // URL, or part of the error
	}{
		{"the pod's address and http are the defaults", "10.0.0.5", v1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(80)}, "http://10.0.0.5:80/healthz"},
		{"scheme in any case", "10.0.0.5", v1.HTTPGetAction{Path: "/", Scheme: "HTTPS", Port: intstr.FromInt32(443)}, "https://10.0.0.5:443/"},
		{"a port by its name", "10.0.0.5", v1.HTTPGetAction{Path: "/", Port: intstr.FromString("web")}, "http://10.0.0.5:8080/"},
		{"a query stays one", "10.0.0.5", v1.HTTPGetAction{Path: "/x?a=b%20c", Port: intstr.FromInt32(80)}, "http://10.0.0.5:80/x?a=b%20c"},
		{"a path without a slash gets one", "10.0.0.5", v1.HTTPGetAction{Path: "ok", Port: intstr.FromInt32(80)}, "http://10.0.0.5:80/ok"},
		{"a path that cannot be parsed is taken raw", "10.0.0.5", v1.HTTPGetAction{Path: "/%zz", Port: intstr.FromInt32(80)}, "http://10.0.0.5:80/%25zz"},
		{"a host in the path does not count", "10.0.0.5", v1.HTTPGetAction{Path: "https://evil/x", Port: intstr.FromInt32(80)}, "http://10.0.0.5:80/x"},
		{"a port name of nobody", "10.0.0.5", v1.HTTPGetAction{Port: intstr.FromString("admin")}, `error: container c has no port named "admin"`},
		{"a named port out of range", "10.0.0.5", v1.HTTPGetAction{Port: intstr.FromString("big")}, "error: port 70000 is out of range"},
		{"port 0", "10.0.0.5", v1.HTTPGetAction{Port: intstr.FromInt32(0)}, "error: port 0 is out of range"},
		{"no address", "", v1.HTTPGetAction{Port: intstr.FromInt32(80)}, "error: the pod has no address yet"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := urlOf(t, &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &c.get}}, podprobe.Target{Container: &v1.Container{Name: "c", Ports: ports}, IP: c.ip})
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// urlOf is where a check goes, read from its failure: the deadline is over before it begins.
func urlOf(t *testing.T, p *v1.Probe, target podprobe.Target) string {
	t.Helper()
	check, err := podprobe.Check(p, target)
	if err != nil {
		return "error: " + err.Error()
	}
	ctx, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	res, text, err := check(ctx)
	if res != probe.Failure || err != nil {
		t.Fatal(res, text, err)
	}
	return strings.Trim(strings.TrimSuffix(strings.TrimPrefix(text, "Get "), ": context deadline exceeded (Client.Timeout exceeded while awaiting headers)"), `"`)
}

// Case c037: who is asked on a node of IPv6 first, and that a failure shows it.
func TestCase_c037_TheAddressThatIsAsked(t *testing.T) {
	for _, c := range []struct{ name, ip, host, want string }{
		{"the pod's first address, in brackets", "fd00::5", "", "[fd00::5]:8080"},
		{"an explicit host", "fd00::5", "127.0.0.1", "127.0.0.1:8080"},
		{"an explicit host of IPv6, in brackets", "10.0.0.5", "::1", "[::1]:8080"},
	} {
		t.Run(c.name, func(t *testing.T) {
			port := intstr.FromInt32(8080)
			asked := &hosts{}
			target := podprobe.Target{Container: &v1.Container{}, IP: c.ip, Client: &http.Client{Transport: asked}}
			for kind, h := range map[string]v1.ProbeHandler{
				"http": {HTTPGet: &v1.HTTPGetAction{Host: c.host, Path: "/", Port: port}},
				"tcp":  {TCPSocket: &v1.TCPSocketAction{Host: c.host, Port: port}},
			} {
				check, err := podprobe.Check(&v1.Probe{ProbeHandler: h}, target)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), -time.Second)
				res, text, err := check(ctx)
				cancel()
				if res != probe.Failure || err != nil || !strings.Contains(text, c.want) {
					t.Errorf("%s: %v, %v, and its text does not say %s: %q", kind, res, err, c.want, text)
				}
			}
			if want := []string{c.want + " " + c.want}; !slices.Equal(asked.of, want) {
				t.Errorf("asked %q, want %q", asked.of, want)
			}
		})
	}
}

// hosts notes where a request goes, and its header Host.
type hosts struct{ of []string }

func (h *hosts) RoundTrip(r *http.Request) (*http.Response, error) {
	h.of = append(h.of, r.URL.Host+" "+cmp.Or(r.Host, r.URL.Host))
	return nil, r.Context().Err()
}

// Case c036, rows (4) to (6), as a pod spec says them.
func TestCase_c036_HTTPHeadersAreAllSent(t *testing.T) {
	var got http.Header
	var host string
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, host = r.Header, r.Host }))
	defer s.Close()
	addr := s.Listener.Addr().(*net.TCPAddr)
	check, err := podprobe.Check(&v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{
		Port:        intstr.FromInt(addr.Port),
		HTTPHeaders: []v1.HTTPHeader{{Name: "x-twice", Value: "1"}, {Name: "X-Twice", Value: "2"}, {Name: "host", Value: "web"}, {Name: "accept", Value: ""}},
	}}}, podprobe.Target{Container: &v1.Container{}, IP: addr.IP.String()})
	if err != nil {
		t.Fatal(err)
	}
	if res, text, err := check(t.Context()); res != probe.Success {
		t.Fatal(res, text, err)
	}
	if !slices.Equal(got["X-Twice"], []string{"1", "2"}) || host != "web" || len(got["Accept"]) != 0 {
		t.Errorf("headers %v, host %q", got, host)
	}
}

func TestTCPTarget(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := intstr.FromInt(l.Addr().(*net.TCPAddr).Port)
	for name, c := range map[string]struct {
		tcp v1.TCPSocketAction
		ip  string
	}{
		"the pod's address is the default": {v1.TCPSocketAction{Port: port}, "127.0.0.1"},
		"a host goes before it":            {v1.TCPSocketAction{Port: port, Host: "127.0.0.1"}, "fd00::5"},
	} {
		t.Run(name, func(t *testing.T) {
			check, err := podprobe.Check(&v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &c.tcp}}, podprobe.Target{Container: &v1.Container{}, IP: c.ip})
			if err != nil {
				t.Fatal(err)
			}
			if res, text, err := check(t.Context()); res != probe.Success || err != nil {
				t.Error(res, text, err)
			}
		})
	}
}

func TestExecCommand(t *testing.T) {
	env := []v1.EnvVar{
		{Name: "A", Value: "alpha"},
		{Name: "A", Value: "last"},
		{Name: "REF", Value: "$(A)"},
		{Name: "FROM", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
	}
	for in, want := range map[string]string{
		"plain":          "plain",
		"$(A)":           "last", // the later of two
		"x$(A)y$(A)":     "xlasty" + "last",
		"$(REF)":         "$(A)", // values are not expanded again
		"$(FROM)":        "",     // its value comes from elsewhere
		"$(NONE)":        "$(NONE)",
		"$$(A)":          "$(A)",
		"$$$(A)":         "$last",
		"$$$$(A)":        "$$(A)",
		"$A ${A}":        "$A ${A}",
		"$(A":            "$(A",
		"$()":            "$()",
		"cost: 5$":       "cost: 5$",
		"$(A$(A))":       "$(A$(A))",
		"$x$(A)":         "$xlast",
		"\xff$(A)":       "\xfflast",
		"ü$ü$(A) $ $(A)": "ü$ülast $ last",
	} {
		var got []string
		exec := func(_ context.Context, cmd []string) (int, []byte, error) { got = cmd; return 0, nil, nil }
		check, err := podprobe.Check(execProbe("sh", in), podprobe.Target{Container: &v1.Container{Env: env}, Exec: exec})
		if err != nil {
			t.Fatal(err)
		}
		if res, _, err := check(t.Context()); res != probe.Success || err != nil {
			t.Fatal(res, err)
		}
		if !slices.Equal(got, []string{"sh", want}) {
			t.Errorf("%q becomes %q, want %q", in, got[1], want)
		}
	}
}

func TestGRPCTarget(t *testing.T) {
	var got string
	ask := func(_ context.Context, addr, service string) (probe.Result, string, error) {
		got = addr + " " + service
		return probe.Success, "", nil
	}
	p := &v1.Probe{ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 9000}}}
	check, err := podprobe.Check(p, podprobe.Target{Container: &v1.Container{}, IP: "fd00::5", GRPC: ask})
	if err != nil {
		t.Fatal(err)
	}
	if res, _, err := check(t.Context()); res != probe.Success || err != nil || got != "[fd00::5]:9000 " {
		t.Error(res, err, got)
	}
}

func TestWhatNobodyCanAskStaysUndecided(t *testing.T) {
	for name, p := range map[string]*v1.Probe{
		"exec": execProbe("true"),
		"grpc": {ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: 9000}}},
	} {
		if _, err := podprobe.Check(p, podprobe.Target{Container: &v1.Container{}, IP: "10.0.0.5"}); !errors.Is(err, podprobe.ErrUndecided) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAProbeWithoutAnActionIsAnError(t *testing.T) {
	if _, err := podprobe.Check(&v1.Probe{}, podprobe.Target{Container: &v1.Container{}}); err == nil || errors.Is(err, podprobe.ErrUndecided) {
		t.Error(err)
	}
}

func TestNumbersOfAProbe(t *testing.T) {
	var empty v1.Probe
	if got := fmt.Sprint(podprobe.Delay(&empty), podprobe.Period(&empty), podprobe.Timeout(&empty), podprobe.Rule(&empty)); got != "0s 10s 1s {0 0}" {
		t.Error(got)
	}
	full := v1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 2, TimeoutSeconds: 3, SuccessThreshold: 4, FailureThreshold: 6}
	if got := fmt.Sprint(podprobe.Delay(&full), podprobe.Period(&full), podprobe.Timeout(&full), podprobe.Rule(&full)); got != "5s 2s 3s {4 6}" {
		t.Error(got)
	}
}

func execProbe(cmd ...string) *v1.Probe {
	return &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: cmd}}}
}

func FuzzExpand(f *testing.F) {
	f.Add("$$(A)$(B", "x")
	f.Fuzz(func(t *testing.T, s, value string) {
		var got []string
		exec := func(_ context.Context, cmd []string) (int, []byte, error) { got = cmd; return 0, nil, nil }
		check, err := podprobe.Check(execProbe(s), podprobe.Target{Container: &v1.Container{Env: []v1.EnvVar{{Name: "A", Value: value}}}, Exec: exec})
		if err != nil {
			t.Fatal(err)
		}
		_, _, _ = check(t.Context())
		if !strings.Contains(s, "$") && got[0] != s {
			t.Errorf("%q became %q", s, got[0])
		}
		if value == "$(A)" && !strings.Contains(s, "$$") && got[0] != s {
			t.Errorf("%q became %q", s, got[0])
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	p := &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{
		Path: "/healthz", Port: intstr.FromString("web"), HTTPHeaders: []v1.HTTPHeader{{Name: "X-Probe", Value: "1"}},
	}}}
	target := podprobe.Target{Container: &v1.Container{Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 8080}}}, IP: "10.0.0.5"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := podprobe.Check(p, target); err != nil {
			b.Fatal(err)
		}
	}
}
