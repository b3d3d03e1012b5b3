package volume_test

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/mount-utils"
)

func mountedAt(dir string) mount.MountPoint {
	return mount.MountPoint{Device: "tmpfs", Path: dir, Type: "tmpfs"}
}

// The volume that each pod gets from an API server.
func TestKubeAPIAccess(t *testing.T) {
	newCluster(configMap("kube-root-ca.crt", "ca.crt", "CA")).bubble(t, func(r *rig) {
		t := r.t
		pod := podWith("u1", projected("kube-api-access-x", token("token", 3607),
			v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{
				LocalObjectReference: v1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []v1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{fieldItem("namespace", "metadata.namespace")}}},
		))
		pod.Spec.ServiceAccountName = "robot"
		dir := r.in(t, pod, "kube-api-access-x")
		want := map[string]string{"token": "rw-r--r-- token 1", "ca.crt": "rw-r--r-- CA", "namespace": "rw-r--r-- default"}
		if diff := cmp.Diff(want, visible(t, dir)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if diff := cmp.Diff([]string{"default/robot  3607"}, r.requests); diff != "" {
			t.Errorf("asked (-want +got)\n%s", diff)
		}
	})
}

func TestOneTokenForAllWhoWantTheSame(t *testing.T) {
	newCluster().bubble(t, func(r *rig) {
		t := r.t
		vault := token("vault", 3600)
		vault.ServiceAccountToken.Audience = "vault"
		plain := token("plain", 0)
		plain.ServiceAccountToken.ExpirationSeconds = nil
		pod := podWith("u1", projected("a", token("token", 3600), vault), projected("b", token("token", 3600), plain), projected("c", token("token", 7200)))
		for range 3 {
			r.in(t, pod, "a")
		}
		if n := r.tokens(); n != 3 {
			t.Errorf("%d tokens: %q", n, r.requests)
		}
	})
}

func TestTokenFilesAreForWhoRunsThePod(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it gives files away")
	}
	for _, c := range []struct {
		rule   string
		change func(*v1.Pod)
		mode   os.FileMode
		uid    uint32
		gid    uint32
	}{
		{"everybody, if nothing is said", func(*v1.Pod) {}, 0o644, 0, 0},
		{"the user of the pod", func(p *v1.Pod) { p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64(1000))} }, 0o600, 1000, 0},
		{"the user that all containers share", func(p *v1.Pod) {
			p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64(1000))}
			p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{RunAsUser: new(int64(7))}
		}, 0o600, 7, 0},
		{"everybody, if they run as several", func(p *v1.Pod) {
			p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64(1000))}
			p.Spec.InitContainers = []v1.Container{{Name: "init", SecurityContext: &v1.SecurityContext{RunAsUser: new(int64(0))}}}
		}, 0o644, 0, 0},
		{"everybody, if one does not say", func(p *v1.Pod) {
			p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{RunAsUser: new(int64(7))}
			p.Spec.InitContainers = []v1.Container{{Name: "init"}}
		}, 0o644, 0, 0},
		{"the group that owns the volumes", func(p *v1.Pod) { p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(42))} }, 0o640, 0, 42},
		{"user and group", func(p *v1.Pod) {
			p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64(1000)), FSGroup: new(int64(42))}
		}, 0o640, 1000, 42},
	} {
		t.Run(c.rule, func(t *testing.T) {
			newCluster().bubble(t, func(r *rig) {
				t := r.t
				pod := podWith("u1", projected("all", token("token", 600)))
				c.change(pod)
				dir := r.in(t, pod, "all")
				for range 2 { // the second one after it was renewed
					info, err := os.Stat(dir + "/token")
					if err != nil {
						t.Fatal(err)
					}
					sys := info.Sys().(*syscall.Stat_t)
					if info.Mode() != c.mode || sys.Uid != c.uid || sys.Gid != c.gid {
						t.Errorf("%v of %d:%d, want %v of %d:%d", info.Mode(), sys.Uid, sys.Gid, c.mode, c.uid, c.gid)
					}
					// Field report kubernetes/kubernetes#137332: a link of another user's is not followed everywhere.
					if link, err := os.Lstat(dir + "/token"); err != nil || link.Sys().(*syscall.Stat_t).Uid != c.uid {
						t.Errorf("the link is of %+v (%v), want %d", link.Sys(), err, c.uid)
					}
					time.Sleep(8 * time.Minute)
					synctest.Wait()
				}
				if got := read(t, dir+"/token"); got == "token 1" {
					t.Error("not renewed")
				}
			})
		})
	}
}

func TestTokensAreRenewedAtFourFifthsOfTheirLife(t *testing.T) {
	newCluster().bubble(t, func(r *rig) {
		t := r.t
		dir := r.in(t, podWith("u1", projected("all", token("token", 3600))), "all")
		for n := 1; n < 4; n++ {
			begun := time.Now()
			for r.tokens() == n {
				time.Sleep(time.Second)
				synctest.Wait()
			}
			if after := time.Since(begun); after < 48*time.Minute-10*time.Second || after > 48*time.Minute+time.Second {
				t.Errorf("asked anew after %v", after)
			}
		}
		if got := read(t, dir+"/token"); got != "token 4" {
			t.Errorf("on the disk: %s", got)
		}
		r.unmount(t, "u1")
		time.Sleep(24 * time.Hour)
		if r.tokens() != 4 {
			t.Error("asked for a pod that is no more")
		}
	})
}

func TestCase_c134_ARenewalThatFailsIsTriedAgain(t *testing.T) {
	for _, c := range []struct {
		rule string
		back time.Duration // when the server is back
	}{{"before the token expires", 570 * time.Second}, {"long after it expired", 3 * time.Hour}} {
		t.Run(c.rule, func(t *testing.T) {
			newCluster().bubble(t, func(r *rig) {
				t := r.t
				pod := podWith("u1", projected("all", token("token", 600)))
				begun := time.Now()
				dir := r.in(t, pod, "all")
				time.Sleep(420 * time.Second)
				r.be(errors.New("forbidden"), 0)
				time.Sleep(c.back - time.Since(begun))
				synctest.Wait()
				if tried := r.tokens() - 1; tried < 4 || tried > int(c.back/(30*time.Second)) {
					t.Errorf("tried %d times", tried)
				}
				if r.in(t, pod, "all"); read(t, dir+"/token") != "token 1" {
					t.Error("the old token is gone")
				}
				r.be(nil, 0)
				time.Sleep(90 * time.Second)
				synctest.Wait()
				if read(t, dir+"/token") == "token 1" {
					t.Error("still the old one")
				}
				if told, woken := r.told(), r.wakes(); len(told) > 1 || woken > 0 {
					t.Errorf("told %q, woken %d times", told, woken)
				}
			})
		})
	}
}
