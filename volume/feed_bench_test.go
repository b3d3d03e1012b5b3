package volume_test

import (
	"testing"

	"k8s.io/mount-utils"

	"github.com/kubeletkit/kubeletkit/volume"
)

// What each step of a pod costs whose volumes are in place and up to date.
func BenchmarkMountAgain(b *testing.B) {
	c := newCluster(configMap("kube-root-ca.crt", "ca.crt", string(make([]byte, 2000))))
	m, err := volume.New(volume.Config{Root: b.TempDir(), Mounter: mount.NewFakeMounter(nil), Objects: c, Tokens: c})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- m.Run(b.Context()) }()
	b.Cleanup(func() { <-done })
	pod := podWith("u1", projected("all", token("token", 3600)), ofConfigMap("conf", "kube-root-ca.crt"))
	for b.Loop() {
		if _, err := m.Mount(b.Context(), pod); err != nil {
			b.Fatal(err)
		}
	}
}
