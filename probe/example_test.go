package probe_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/kubeletkit/kubeletkit/probe"
)

func ExampleHTTP() {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	result, _, err := probe.HTTP(ctx, probe.HTTPTarget{URL: s.URL + "/healthz"})
	fmt.Println(result, err)
	// Output: failure <nil>
}

func ExampleExec() {
	result, text, err := probe.Exec(context.Background(), func(context.Context) (int, []byte, error) {
		return 1, []byte("disk is full"), nil // os/exec, a container runtime, ssh
	})
	fmt.Println(result, text, err)
	// Output: failure disk is full <nil>
}

func ExampleRule_Add() {
	rule := probe.Rule{FailureThreshold: 2}
	var h probe.History
	for _, r := range []probe.Result{probe.Success, probe.Failure, probe.Failure} {
		var verdict probe.Result
		var decided bool
		h, verdict, decided = rule.Add(h, r)
		fmt.Println(verdict, decided)
	}
	// Output:
	// success true
	// failure false
	// failure true
}
