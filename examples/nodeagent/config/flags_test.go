package config

import (
	"errors"
	"flag"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/kubelet/config/v1beta1"
)

// parsed is a command line, or the error it gives.
func parsed(t *testing.T, args ...string) (*Overrides, []string, error) {
	t.Helper()
	fs := flag.NewFlagSet("nodeagent", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	o := Bind(fs)
	rest, err := o.Parse(args)
	return o, rest, err
}

// configured is what runs with a file and a command line.
func configured(t *testing.T, file string, args ...string) (*v1beta1.KubeletConfiguration, []Warning, error) {
	t.Helper()
	if file != "" {
		dir := write(t, map[string]string{"k.yaml": head + file})
		args = append(args, "--config="+filepath.Join(dir, "k.yaml"))
	}
	o, _, err := parsed(t, args...)
	if err != nil {
		return nil, nil, err
	}
	return o.Load()
}

func TestWithFlagsOnlyTheDefaultsOfAFileHold(t *testing.T) {
	c, warnings, err := configured(t, "", "--kubeconfig=/k", "--max-pods=20")
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	if *c.Authentication.Anonymous.Enabled || !*c.Authentication.Webhook.Enabled || c.Authorization.Mode != "Webhook" || c.ReadOnlyPort != 0 {
		t.Errorf("%+v %+v %d", c.Authentication, c.Authorization, c.ReadOnlyPort)
	}
	if c.MaxPods != 20 || c.EvictionHard["nodefs.available"] != "10%" {
		t.Errorf("maxPods %d, evictionHard %v", c.MaxPods, c.EvictionHard)
	}
}

func TestWithoutAnAPIServerNobodyIsAskedAboutTokens(t *testing.T) {
	c, _, err := configured(t, "authentication: {webhook: {enabled: true}}")
	if err != nil {
		t.Fatal(err)
	}
	if *c.Authentication.Webhook.Enabled || *c.Authentication.Anonymous.Enabled {
		t.Errorf("%+v", c.Authentication)
	}
	c, _, err = configured(t, "", "--bootstrap-kubeconfig=/b", "--kubeconfig=/not/yet")
	if err != nil || !*c.Authentication.Webhook.Enabled {
		t.Error(err, c)
	}
}

func TestAFlagGoesOverTheFileOnlyWhenGiven(t *testing.T) {
	const file = "maxPods: 50\nregisterNode: false\nsyncFrequency: 30s\nevictionHard: {memory.available: 5%}\nfeatureGates: {NodeSwap: true, MemoryQoS: true}\n"
	for _, c := range []struct {
		rule string
		args string
		ok   func(*v1beta1.KubeletConfiguration) bool
	}{
		{"not given", "", func(c *v1beta1.KubeletConfiguration) bool {
			return c.MaxPods == 50 && !*c.RegisterNode && c.SyncFrequency.Duration == 30*time.Second
		}},
		{"given", "--max-pods=60 --register-node --sync-frequency 5s", func(c *v1beta1.KubeletConfiguration) bool {
			return c.MaxPods == 60 && *c.RegisterNode && c.SyncFrequency.Duration == 5*time.Second
		}},
		{"with one dash", "-max-pods 60", func(c *v1beta1.KubeletConfiguration) bool { return c.MaxPods == 60 }},
		{"with underscores", "--max_pods=60", func(c *v1beta1.KubeletConfiguration) bool { return c.MaxPods == 60 }},
		{"the last one counts", "--max-pods=60 --max-pods=70", func(c *v1beta1.KubeletConfiguration) bool { return c.MaxPods == 70 }},
		{"a map replaces the file's", "--eviction-hard=nodefs.available<1Gi", func(c *v1beta1.KubeletConfiguration) bool {
			return maps.Equal(c.EvictionHard, map[string]string{"nodefs.available": "1Gi"})
		}},
		{"an empty one takes all away", "--eviction-hard=", func(c *v1beta1.KubeletConfiguration) bool { return len(c.EvictionHard) == 0 }},
		{"gates are laid over the file's", "--feature-gates=MemoryQoS=false,EventedPLEG=true", func(c *v1beta1.KubeletConfiguration) bool {
			return maps.Equal(c.FeatureGates, map[string]bool{"NodeSwap": true, "MemoryQoS": false, "EventedPLEG": true})
		}},
		{"a list given twice is one list", "--cluster-dns=10.0.0.1,10.0.0.2 --cluster-dns=10.0.0.3", func(c *v1beta1.KubeletConfiguration) bool {
			return slices.Equal(c.ClusterDNS, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"})
		}},
		{"headers", "--manifest-url=http://h/p --manifest-url-header=a:1,b:2 --manifest-url-header=a:3", func(c *v1beta1.KubeletConfiguration) bool {
			return slices.Equal(c.StaticPodURLHeader["a"], []string{"1", "3"}) && c.StaticPodURL == "http://h/p"
		}},
		{"taints", "--register-with-taints=a=b:NoSchedule,c:NoExecute", func(c *v1beta1.KubeletConfiguration) bool {
			return len(c.RegisterWithTaints) == 2 && c.RegisterWithTaints[0].Value == "b" && c.RegisterWithTaints[1].Effect == "NoExecute"
		}},
		{"soft thresholds with their grace", "--eviction-soft=memory.available<10% --eviction-soft-grace-period=memory.available=90s", func(c *v1beta1.KubeletConfiguration) bool {
			return c.EvictionSoft["memory.available"] == "10%" && c.EvictionSoftGracePeriod["memory.available"] == "90s"
		}},
		{"CPUs reserved by number count in place of cpu", "--reserved-cpus=0-2,2,5 --kube-reserved=cpu=1,memory=1Gi --system-reserved=cpu=100m", func(c *v1beta1.KubeletConfiguration) bool {
			return maps.Equal(c.SystemReserved, map[string]string{"cpu": "4"}) && maps.Equal(c.KubeReserved, map[string]string{"memory": "1Gi"})
		}},
		{"port 0 serves nothing", "--port=0", func(c *v1beta1.KubeletConfiguration) bool { return !*c.EnableServer && c.Port == 10250 }},
		{"a socket without its scheme", "--container-runtime-endpoint=/run/x.sock", func(c *v1beta1.KubeletConfiguration) bool {
			return c.ContainerRuntimeEndpoint == "unix:///run/x.sock"
		}},
		{"verbosity", "-v=4", func(c *v1beta1.KubeletConfiguration) bool { return c.Logging.Verbosity == 4 }},
		{"verbosity in one word", "-v4", func(c *v1beta1.KubeletConfiguration) bool { return c.Logging.Verbosity == 4 }},
		{"the host's state may be waved through", "--fail-swap-on=false --fail-cgroupv1=false", func(c *v1beta1.KubeletConfiguration) bool { return !*c.FailSwapOn && !*c.FailCgroupV1 }},
	} {
		t.Run(c.rule, func(t *testing.T) {
			cfg, warnings, err := configured(t, file, strings.Fields(c.args)...)
			if err != nil || len(warnings) > 0 {
				t.Fatal(err, warnings)
			}
			if !c.ok(cfg) {
				t.Errorf("%+v", *cfg)
			}
		})
	}
}

func TestTheFlagsOfTheNode(t *testing.T) {
	o, rest, err := parsed(t, strings.Fields("config --kubeconfig=/k --root-dir /r --node-ip=10.0.0.1,fd00::1 --hostname-override=a --node-labels=a=b,node.kubernetes.io/x=y --node-labels=c=d --cloud-provider=external --strict-config -- --rest")...)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rest, []string{"config", "--rest"}) {
		t.Errorf("rest %q", rest)
	}
	if o.CertDir != "/r/pki" || o.NodeIP != "10.0.0.1,fd00::1" || o.Hostname != "a" || !o.StrictConfig || o.CloudProvider != "external" ||
		!maps.Equal(o.NodeLabels, map[string]string{"a": "b", "node.kubernetes.io/x": "y", "c": "d"}) {
		t.Errorf("%+v", o)
	}
	if !o.Given("node-ip") || o.Given("cert-dir") {
		t.Error("what is given is not what is on the command line")
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ rule, args, want string }{
		{"an unknown flag, with its neighbour", "--max-pod=3", "--max-pod is no flag of this agent; is --max-pods meant?"},
		{"one that is like nothing", "--frobnicate", "--frobnicate is no flag of this agent; --help lists them"},
		{"no value", "--max-pods", "--max-pods needs a value"},
		{"a wrong number", "--max-pods=many", "--max-pods=many: it must be a whole number"},
		{"a number that is too large", "--max-pods=3000000000", "--max-pods=3000000000: it must be a whole number"},
		{"a wrong duration", "--sync-frequency=60", "--sync-frequency=60: it must be a duration such as 10s or 1h30m"},
		{"a wrong truth", "--register-node=perhaps", "--register-node=perhaps: it must be true or false"},
		{"a threshold without a sign", "--eviction-hard=memory.available=5%", `--eviction-hard=memory.available=5%: "memory.available=5%" must be a name and a value with < between`},
		{"a taint without effect", "--register-with-taints=a=b", `--register-with-taints=a=b: "a=b" must be key=value:effect, with NoSchedule, PreferNoSchedule or NoExecute as the effect`},
		{"a header without value", "--manifest-url-header=a", `--manifest-url-header=a: "a" must be a name and a value with : between`},
		{"a gate without value", "--feature-gates=A=maybe", "--feature-gates=A=maybe: A=maybe: it must be true or false"},
		{"a label without value", "--node-labels=a", `--node-labels: "a" must be a name and a value with = between`},
		{"a label a node may not have", "--node-labels=node-role.kubernetes.io/worker=", `--node-labels: node label "node-role.kubernetes.io/worker": a node may give itself labels in kubernetes.io and k8s.io only if they begin with `},
		{"a label that is none", "--node-labels=a=b/c", `--node-labels: node label a="b/c": a valid label must be`},
		{"a provider that is none", "--cloud-provider=aws", "--cloud-provider=aws: it must be external or left out"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			_, _, err := parsed(t, strings.Fields(c.args)...)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
	if _, _, err := parsed(t, "--help"); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("help gives %v", err)
	}
}

func TestFlagsWithoutEffectAreWarnings(t *testing.T) {
	_, warnings, err := configured(t, "", strings.Fields("--pod-infra-container-image=pause --lock-file /run/x --exit-on-lock-contention --pod-infra-container-image=pause:2")...)
	if err != nil {
		t.Fatal(err)
	}
	want := "--exit-on-lock-contention --lock-file --pod-infra-container-image"
	var got []string
	for _, w := range warnings {
		got = append(got, w.Field)
	}
	if strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", warnings, want)
	}
}

func TestBadFlagsAndBadFieldsGiveOneError(t *testing.T) {
	_, _, err := configured(t, "podsPerCore: -1", "--image-gc-low-threshold=90")
	want := "the configuration cannot work:\n" +
		"podsPerCore: is -1; it must be 0 or more\n" +
		"imageGCLowThresholdPercent: is 90; it must be less than imageGCHighThresholdPercent, which is 85"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
