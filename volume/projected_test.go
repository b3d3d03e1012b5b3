package volume_test

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestSourcesThatNobodyHasAreNamed(t *testing.T) {
	newCluster().bubble(t, func(r *rig) {
		t := r.t
		_, err := r.Mount(t.Context(), podWith("u1", projected("all",
			v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "ca"}},
			v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{}},
			token("token", 600),
		)))
		const no = " needs an API server, which this agent has none of"
		want := `MountVolume.SetUp failed for volume "all" : clusterTrustBundle` + no + "\npodCertificate" + no
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	})
}

func TestProjectedJoinsItsSources(t *testing.T) {
	h := newHouse(t)
	source := func(items ...v1.DownwardAPIVolumeFile) v1.VolumeProjection {
		return v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: items}}
	}
	dir := h.in(t, podWith("u1", v1.Volume{Name: "all", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
		DefaultMode: new(int32(0o440)),
		Sources:     []v1.VolumeProjection{source(fieldItem("a", "metadata.name"), fieldItem("b", "metadata.name")), source(fieldItem("b", "metadata.uid"))},
	}}}), "all")
	if a, b := read(t, dir+"/a"), read(t, dir+"/b"); a != "web" || b != "u1" {
		t.Errorf("a %q, b %q: of two with one path the later counts", a, b)
	}
	if info, _ := os.Stat(dir + "/a"); info.Mode() != 0o440 {
		t.Errorf("mode %v", info.Mode())
	}
	if filepath.Base(filepath.Dir(dir)) != "kubernetes.io~projected" {
		t.Error(dir)
	}
}
