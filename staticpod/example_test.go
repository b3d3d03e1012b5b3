package staticpod_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/staticpod"
)

// A manifest is read with its defaults, or refused with all its problems.
func ExampleDecode() {
	pod, warnings, err := staticpod.Decode([]byte(`
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  colour: red
  containers: [{name: web, image: nginx:1.29}]
`))
	fmt.Println(pod.Spec.RestartPolicy, pod.Spec.Containers[0].ImagePullPolicy, err)
	fmt.Println(warnings[0])

	_, _, err = staticpod.Decode([]byte(`
apiVersion: v1
kind: Pod
metadata: {name: Web}
spec:
  containers: [{name: web, image: "", ports: [{containerPort: 70000}]}]
`))
	problems, _ := errors.AsType[staticpod.Problems](err)
	for _, p := range problems {
		fmt.Println(p)
	}
	// Output:
	// Always IfNotPresent <nil>
	// spec: there is no field "colour"; it is ignored
	// metadata.name: "Web" is not a DNS name; use lower case letters, digits, '-' and '.', at most 253 characters
	// spec.containers[0].image: is missing
	// spec.containers[0].ports[0].containerPort: 70000 is not a port; use 1 to 65535
}

// A directory is a pod source: what set is given is what shall run.
func ExampleDir() {
	path, _ := os.MkdirTemp("", "manifests")
	defer os.RemoveAll(path)
	manifest := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: web, image: nginx}]}\n"
	_ = os.WriteFile(filepath.Join(path, "web.yaml"), []byte(manifest), 0o600)

	dir, err := staticpod.NewDir(staticpod.Config{Path: path, Node: "edge-7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = dir.Run(ctx, func(pods []*v1.Pod, complete bool) {
		for _, p := range pods {
			fmt.Println(p.Namespace, p.Name, p.Spec.NodeName, complete)
		}
		cancel()
	})
	fmt.Println(err)
	// Output:
	// default web-edge-7 edge-7 true
	// <nil>
}

// printer is an API server that prints what it is asked for.
type printer struct{ stop func() }

func (p printer) CreateMirror(_ context.Context, pod *v1.Pod) error {
	fmt.Println("create", pod.Namespace, pod.Name, pod.Annotations["kubernetes.io/config.mirror"], pod.OwnerReferences[0].Kind)
	p.stop()
	return nil
}

func (printer) DeleteMirror(context.Context, string, string, types.UID) error { return nil }

// Mirrors shows static pods to a cluster.
func ExampleMirrors() {
	ctx, cancel := context.WithCancel(context.Background())
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kube-system", Name: "etcd-edge-7",
		Annotations: map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "1f2e"},
	}}
	mirrors, err := staticpod.NewMirrors(staticpod.MirrorConfig{
		Client: printer{cancel},
		Node:   func() *v1.Node { return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-7", UID: "a1"}} },
		Pods:   func() []*v1.Pod { return []*v1.Pod{pod} },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mirrors.Show(nil) // the API server has none
	fmt.Println(mirrors.Run(ctx))
	// Output:
	// create kube-system etcd-edge-7 1f2e Node
	// <nil>
}

// An address is a pod source too.
func ExampleURL() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("asked with", r.Header.Get("Metadata-Flavor"))
		fmt.Fprint(w, `{"apiVersion": "v1", "kind": "PodList", "items": [
			{"metadata": {"name": "web"}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}]}`)
	}))
	defer server.Close()
	source, err := staticpod.NewURL(staticpod.URLConfig{
		URL: server.URL, Header: http.Header{"Metadata-Flavor": {"Google"}}, Node: "edge-7",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = source.Run(ctx, func(pods []*v1.Pod, complete bool) {
		fmt.Println(pods[0].Name, complete)
		cancel()
	})
	fmt.Println(err)
	// Output:
	// asked with Google
	// web-edge-7 true
	// <nil>
}
