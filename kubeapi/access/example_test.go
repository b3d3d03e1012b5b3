package access_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"

	"github.com/kubeletkit/kubeletkit/kubeapi/access"
)

// apiServer knows one token, and lets its user read.
type apiServer struct{}

func (apiServer) ReviewToken(_ context.Context, r *authnv1.TokenReview) (*authnv1.TokenReview, error) {
	if r.Spec.Token == "let-me-in" {
		r.Status = authnv1.TokenReviewStatus{Authenticated: true, User: authnv1.UserInfo{Username: "metrics-server"}}
	}
	return r, nil
}

func (apiServer) ReviewAccess(_ context.Context, r *authzv1.SubjectAccessReview) (*authzv1.SubjectAccessReview, error) {
	r.Status.Allowed = r.Spec.User == "metrics-server" && r.Spec.ResourceAttributes.Verb == "get"
	return r, nil
}

// A request with a token, as a server handles it.
func Example() {
	a, err := access.New(access.Config{Node: "node-1", Tokens: apiServer{}, Access: apiServer{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := httptest.NewRequest(http.MethodGet, "/metrics/resource", http.NoBody)
	r.Header.Set("Authorization", "Bearer let-me-in")

	user, err := a.Authenticate(r)
	fmt.Println(user.Username, user.Groups, err)
	for _, verb := range []string{"get", "create"} {
		ok, err := a.Authorize(r.Context(), user, verb, "nodes", "metrics")
		fmt.Println(verb, ok, err)
	}
	// Output:
	// metrics-server [system:authenticated] <nil>
	// get true <nil>
	// create false <nil>
}
