package keyring_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/image/keyring"
)

// A pod names a pull secret; what stands in it opens the registry.
func Example() {
	k, err := keyring.New(keyring.Config{
		Secret: func(context.Context, string, string) (*v1.Secret, error) {
			return &v1.Secret{
				Type: v1.SecretTypeDockerConfigJson,
				Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths": {"*.example.com": {"username": "reader", "password": "secret"}}}`)},
			}, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := &v1.Pod{Spec: v1.PodSpec{ImagePullSecrets: []v1.LocalObjectReference{{Name: "registry"}}}}
	found, _, err := k.Lookup(context.Background(), pod, "images.example.com/team/web")
	fmt.Println(len(found), found[0].Username, err)
	// Output: 1 reader <nil>
}
