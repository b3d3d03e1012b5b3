package volume_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/volume"
)

func TestCase_c140_FilesFollowTheirObject(t *testing.T) {
	newCluster(configMap("app", "a", "1"), secret("key", "k", "1")).bubble(t, func(r *rig) {
		t := r.t
		maybe := v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "later"}, Optional: new(true)}}
		from := v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "app"}}}
		pod := podWith("u1", ofConfigMap("conf", "app"), ofSecret("key", "key"), projected("all", maybe, from, token("token", 3600)))
		conf := r.in(t, pod, "conf")
		all := r.in(t, pod, "all")
		before, _ := os.Readlink(conf + "/..data")
		r.put(configMap("app", "a", "1"))
		synctest.Wait()
		if after, _ := os.Readlink(conf + "/..data"); after != before {
			t.Error("written anew though nothing has changed")
		}
		r.put(configMap("app", "a", "2", "b", "new"))
		synctest.Wait()
		if diff := cmp.Diff(map[string]string{"a": "rw-r--r-- 2", "b": "rw-r--r-- new"}, visible(t, conf)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if _, err := os.Stat(conf + "/" + before); err == nil {
			t.Error("the old files are still there")
		}
		r.put(secret("later", "z", "Z"))
		r.put(configMap("app", "b", "only"))
		synctest.Wait()
		want := map[string]string{"b": "rw-r--r-- only", "z": "rw-r--r-- Z", "token": "rw-r--r-- token 1"}
		if diff := cmp.Diff(want, visible(t, all)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		r.set("Secret/default/later", nil)
		synctest.Wait()
		if _, err := os.Lstat(all + "/z"); err == nil {
			t.Error("an optional object is gone, but its file is not")
		}
		if n := r.wakes(); n != 0 {
			t.Errorf("woken %d times: nothing but files has changed", n)
		}
		r.unmount(t, "u1")
		r.put(configMap("app", "a", "3"))
		synctest.Wait()
		if entries, _ := os.ReadDir(r.root + "/pods"); len(entries) > 0 {
			t.Error("written for a pod that is no more")
		}
	})
}

func TestAnObjectThatIsTakenAwayKeepsItsFiles(t *testing.T) {
	newCluster(configMap("app", "a", "1")).bubble(t, func(r *rig) {
		t := r.t
		pod := podWith("u1", ofConfigMap("conf", "app"))
		dir := r.in(t, pod, "conf")
		r.set("ConfigMap/default/app", nil)
		synctest.Wait()
		for range 3 {
			time.Sleep(time.Minute)
			r.in(t, pod, "conf")
		}
		if read(t, dir+"/a") != "1" {
			t.Error("a container that runs has lost its file")
		}
		want := []string{`web FailedMount MountVolume.SetUp failed for volume "conf" : configmap "app" not found`}
		if diff := cmp.Diff(want, r.told()); diff != "" {
			t.Errorf("told (-want +got)\n%s", diff)
		}
		r.put(configMap("app", "a", "2"))
		synctest.Wait()
		if read(t, dir+"/a") != "2" {
			t.Error("it came back, but its file is the old one")
		}
		r.set("ConfigMap/default/app", nil)
		if told := r.told(); len(told) != 2 {
			t.Errorf("told %q: it went for a second time", told)
		}
	})
}

func TestWhatDoesNotFitLeavesTheOldFiles(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it mounts")
	}
	synctest.Test(t, func(t *testing.T) {
		newCluster(secret("key", "k", "1")).run(t, "", func(r *rig) {
			pod := podWith("u1", ofSecret("key", "key"))
			dir := r.in(t, pod, "key")
			r.put(secret("key", "a", "2", "k", strings.Repeat("2", 200_000)))
			synctest.Wait()
			r.in(t, pod, "key")
			if read(t, dir+"/k") != "1" {
				t.Error("the old file is gone")
			}
			if told := r.told(); len(told) != 1 || told[0] != `web FailedMount MountVolume.SetUp failed for volume "key" : write files: file "k": no space left on device` {
				t.Errorf("told %q", told)
			}
			r.put(secret("key", "k", strings.Repeat("3", 20_000)))
			synctest.Wait()
			if got := read(t, dir+"/k"); len(got) != 20_000 {
				t.Errorf("%d bytes, though there is room for these", len(got))
			}
			r.unmount(t, "u1")
		}, func(c *volume.Config) { c.Mounter, c.Memory = nil, 64<<10 })
	})
}

func TestImmutableObjectsAreNotFollowed(t *testing.T) {
	o := configMap("app", "a", "1")
	o.Immutable = new(true)
	newCluster(o, secret("key")).bubble(t, func(r *rig) {
		t := r.t
		pod := podWith("u1", ofConfigMap("conf", "app"), ofSecret("key", "key"))
		for range 5 {
			r.in(t, pod, "conf")
			time.Sleep(2 * time.Minute)
		}
		if n, asked := r.followed(), r.asked["ConfigMap/default/app"]; n != 1 || asked != 1 {
			t.Errorf("%d followed, the immutable one asked for %d times", n, asked)
		}
	})
}

func TestAChangeNobodyToldOfIsSeenByALaterMount(t *testing.T) {
	newCluster(configMap("app", "a", "1")).bubble(t, func(r *rig) {
		t := r.t
		pod := podWith("u1", ofConfigMap("conf", "app"))
		dir := r.in(t, pod, "conf")
		r.objects["ConfigMap/default/app"] = configMap("app", "a", "2")
		time.Sleep(time.Minute)
		r.in(t, pod, "conf")
		synctest.Wait()
		if read(t, dir+"/a") != "2" {
			t.Error("still the old content")
		}
	})
}

func TestCase_c136_ARestartedAgentKeepsWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(configMap("app", "a", "1"))
		pod := podWith("u1", ofConfigMap("conf", "app"), projected("all", token("token", 600)))
		var root, conf, all string
		c.run(t, "", func(r *rig) {
			root, conf, all = r.root, r.in(t, pod, "conf"), r.in(t, pod, "all")
		})
		link, _ := os.Readlink(conf + "/..data")
		inode, _ := os.Stat(all)

		c.be(errors.New("connection refused"), 0)
		c.run(t, root, func(r *rig) {
			r.fake.MountPoints = append(r.fake.MountPoints, mountedAt(all))
			for range 2 {
				if r.in(t, pod, "conf") != conf || r.in(t, pod, "all") != all || read(t, all+"/token") != "token 1" || read(t, conf+"/a") != "1" {
					t.Error("something is gone")
				}
			}
			if told := r.told(); len(told) != 2 {
				t.Errorf("told %q, want a line for each volume", told)
			}
			c.be(nil, 0)
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if got := read(t, all+"/token"); got == "token 1" {
				t.Error("the token was never asked for anew")
			}
			if after, _ := os.Readlink(conf + "/..data"); after != link {
				t.Error("written anew though nothing has changed")
			}
			if after, _ := os.Stat(all); !os.SameFile(inode, after) || len(r.fake.MountPoints) != 1 {
				t.Error("a running container looks at another directory now")
			}
		})
	})
}
