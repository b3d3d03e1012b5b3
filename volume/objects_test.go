package volume_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/volume"
)

// visible are the files of a volume as a container sees them, with their modes.
func visible(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir+"/..data/", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, dir+"/..data/")
		info, err := os.Stat(dir + "/" + name)
		if err != nil {
			return err
		}
		out[name] = info.Mode().String()[1:] + " " + read(t, dir+"/"+name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestConfigMapsAndSecrets(t *testing.T) {
	binary := configMap("app", "a.ini", "A")
	binary.BinaryData = map[string][]byte{"b.bin": {0xff}}
	yes := new(true)
	optional := func(v v1.Volume) v1.Volume {
		if v.ConfigMap != nil {
			v.ConfigMap.Optional = yes
		} else {
			v.Secret.Optional = yes
		}
		return v
	}
	modes := func(v v1.Volume) v1.Volume {
		if v.ConfigMap != nil {
			v.ConfigMap.DefaultMode = new(int32(0o400))
		} else {
			v.Secret.DefaultMode = new(int32(0o400))
		}
		return v
	}
	for _, c := range []struct {
		rule   string
		volume v1.Volume
		want   map[string]string
		err    string
	}{
		{rule: "all keys are files", volume: ofConfigMap("v", "app"), want: map[string]string{"a.ini": "rw-r--r-- A", "b.bin": "rw-r--r-- \xff"}},
		{rule: "all keys of a secret, too", volume: ofSecret("v", "key"), want: map[string]string{"tls.crt": "rw-r--r-- C", "tls.key": "rw-r--r-- K"}},
		{
			rule: "items choose, name and have modes of their own", want: map[string]string{"conf/x": "r-------- A", "y": "rw-rw---- \xff"},
			volume: modes(ofConfigMap("v", "app", v1.KeyToPath{Key: "a.ini", Path: "conf/x"}, v1.KeyToPath{Key: "b.bin", Path: "y", Mode: new(int32(0o660))})),
		},
		{rule: "items of a secret", volume: modes(ofSecret("v", "key", v1.KeyToPath{Key: "tls.key", Path: "k"})), want: map[string]string{"k": "r-------- K"}},
		{rule: "a missing object", volume: ofConfigMap("v", "none"), err: `configmap "none" not found`},
		{rule: "a missing secret", volume: ofSecret("v", "none"), err: `secret "none" not found`},
		{rule: "a missing object that is optional shows nothing", volume: optional(ofConfigMap("v", "none")), want: map[string]string{}},
		{rule: "a missing secret that is optional, with items", volume: optional(ofSecret("v", "none", v1.KeyToPath{Key: "a", Path: "a"})), want: map[string]string{}},
		{rule: "a missing key", volume: ofConfigMap("v", "app", v1.KeyToPath{Key: "no", Path: "x"}), err: `configmap "app" has no key "no", which the volume is to show as file "x"`},
		{
			rule: "a missing key that is optional", want: map[string]string{"x": "rw-r--r-- K"},
			volume: optional(ofSecret("v", "key", v1.KeyToPath{Key: "no", Path: "n"}, v1.KeyToPath{Key: "tls.key", Path: "x"})),
		},
		{rule: "a path that leads elsewhere", volume: ofSecret("v", "key", v1.KeyToPath{Key: "tls.key", Path: "../../x"}), err: `path "../../x" must not go up by .. anywhere`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			newCluster(binary, secret("key", "tls.crt", "C", "tls.key", "K")).bubble(t, func(r *rig) {
				t := r.t
				places, err := r.Mount(t.Context(), podWith("u1", c.volume))
				if c.err != "" {
					if want := `MountVolume.SetUp failed for volume "v" : ` + c.err; err == nil || err.Error() != want {
						t.Errorf("error %v, want %s", err, want)
					}
					if _, err := os.Stat(r.root + "/pods"); err == nil {
						t.Error("something was made before all was known to be fine")
					}
				} else if err != nil {
					t.Fatal(err)
				} else if diff := cmp.Diff(c.want, visible(t, places["v"].Path)); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
				r.unmount(t, "u1")
				if len(r.fake.MountPoints) != 0 || r.followed() != 0 {
					t.Errorf("left: %v, %d followed", r.fake.MountPoints, r.followed())
				}
			})
		})
	}
}

func TestWhereFilesLie(t *testing.T) {
	newCluster(configMap("app", "a", ""), secret("key", "k", "")).bubble(t, func(r *rig) {
		t := r.t
		pod := podWith("u1", ofConfigMap("conf", "app"), ofSecret("key", "key"), projected("all", token("token", 3600)))
		for range 3 {
			places, err := r.Mount(t.Context(), pod)
			if err != nil {
				t.Fatal(err)
			}
			base := r.root + "/pods/u1/volumes/kubernetes.io~"
			want := map[string]runtime.Volume{
				"conf": {Path: base + "configmap/conf", ReadOnly: true, Relabel: true},
				"key":  {Path: base + "secret/key", ReadOnly: true, Relabel: true},
				"all":  {Path: base + "projected/all", ReadOnly: true, Relabel: true},
			}
			if diff := cmp.Diff(want, places); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		}
		var mounted []string
		for _, mp := range r.fake.MountPoints {
			mounted = append(mounted, mp.Type+" "+filepath.Base(mp.Path))
		}
		if diff := cmp.Diff([]string{"tmpfs key", "tmpfs all"}, mounted); diff != "" {
			t.Errorf("mounted, and each once (-want +got)\n%s", diff)
		}
	})
}

func TestAMissingObjectHealsWhenItComes(t *testing.T) {
	newCluster().bubble(t, func(r *rig) {
		t := r.t
		pod := podWith("u1", ofConfigMap("conf", "app"), ofSecret("key", "key"))
		for range 3 {
			if _, err := r.Mount(t.Context(), pod); err == nil || errors.Is(err, runtime.ErrInProgress) {
				t.Errorf("error %v", err)
			}
		}
		time.Sleep(10 * time.Minute)
		if n := r.wakes(); n != 0 {
			t.Errorf("woken %d times while nothing has changed", n)
		}
		r.put(configMap("app", "a", "A"))
		if n := r.wakes(); n != 1 {
			t.Errorf("woken %d times when one came", n)
		}
		if _, err := r.Mount(t.Context(), pod); err == nil || !strings.HasSuffix(err.Error(), `secret "key" not found`) || strings.Contains(err.Error(), "conf") {
			t.Errorf("error %v, want one of the other", err)
		}
		r.put(secret("key", "k", "K"))
		if n := r.wakes(); n != 2 {
			t.Errorf("woken %d times when the other came", n)
		}
		if dir := r.in(t, pod, "key"); read(t, dir+"/k") != "K" {
			t.Error("wrong content")
		}
		if told := r.told(); len(told) != 0 {
			t.Errorf("told %q: that is the caller's to tell", told)
		}
	})
}

func TestASlowServerDoesNotHoldAStep(t *testing.T) {
	c := newCluster(configMap("app", "a", "A"))
	c.be(nil, 5*time.Second)
	c.bubble(t, func(r *rig) {
		t := r.t
		pod := podWith("u1", ofConfigMap("conf", "app"), projected("all", token("token", 3600)), emptyDir("cache"))
		begun := time.Now()
		_, err := r.Mount(t.Context(), pod)
		if held := time.Since(begun); !errors.Is(err, runtime.ErrInProgress) || held > time.Second {
			t.Errorf("error %v after %v", err, held)
		}
		if err == nil || err.Error() != "volume \"conf\": wait for configmap \"app\": in progress\nvolume \"all\": wait for token for audience \"\": in progress" {
			t.Errorf("error %v", err)
		}
		time.Sleep(5 * time.Second)
		if n := r.wakes(); n != 1 {
			t.Errorf("woken %d times", n)
		}
		begun = time.Now()
		if dir := r.in(t, pod, "conf"); read(t, dir+"/a") != "A" || time.Since(begun) != 0 || r.tokens() != 1 {
			t.Error("what was answered must not be waited for again")
		}
	})
}

func TestAServerThatDoesNotAnswerIsAnErrorAfterAWhile(t *testing.T) {
	c := newCluster(configMap("app", "a", "A"))
	c.be(nil, time.Hour)
	c.bubble(t, func(r *rig) {
		t := r.t
		pod := podWith("u1", ofConfigMap("conf", "app"))
		mount := func() error { _, err := r.Mount(t.Context(), pod); return err }
		if err := mount(); !errors.Is(err, runtime.ErrInProgress) {
			t.Errorf("error %v", err)
		}
		time.Sleep(11 * time.Second)
		if n := r.wakes(); n != 1 {
			t.Errorf("woken %d times", n)
		}
		if err := mount(); err == nil || err.Error() != `MountVolume.SetUp failed for volume "conf" : look up configmap "app": context deadline exceeded` {
			t.Errorf("error %v", err)
		}
		r.be(nil, 0)
		time.Sleep(30 * time.Second) // by itself, without another step
		if n := r.wakes(); n != 2 {
			t.Errorf("woken %d times when the server answered again", n)
		}
		r.in(t, pod, "conf")
	})
}

func TestWithoutAnAPIServer(t *testing.T) {
	h := newHouse(t)
	want := func(what string, v v1.Volume) {
		t.Helper()
		_, err := h.Mount(t.Context(), podWith("u1", v))
		if want := `MountVolume.SetUp failed for volume "v" : ` + what; err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	want("configMap needs an API server, which this agent has none of", ofConfigMap("v", "app"))
	want("secret needs an API server, which this agent has none of", ofSecret("v", "app"))
	want("serviceAccountToken needs an API server, which this agent has none of", projected("v", token("t", 600)))
	half, err := volume.New(volume.Config{Root: h.root, Tokens: newCluster()})
	if err != nil {
		t.Fatal(err)
	}
	h.Manager = half
	want("secret needs an API server, which this agent has none of", ofSecret("v", "app"))
}
