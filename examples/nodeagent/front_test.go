package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/syncloop"
)

// certificateFor is one of an administrator who is an authority, too.
func certificateFor(t *testing.T, name string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return c
}

// Field report kubernetes/kubernetes#136762: authorities that were exchanged counted only after a restart.
func TestAdministratorsFollowTheFileOfAuthorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "ca.crt")
		authorities := func(c *x509.Certificate) {
			if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		before, after := certificateFor(t, "before"), certificateFor(t, "after")
		authorities(before)
		k := &v1beta1.KubeletConfiguration{}
		k.Authentication.X509.ClientCAFile = file
		a, err := accessOf(&options{kubelet: k}, nil, "secret", observe.To{})
		if err != nil {
			t.Fatal(err)
		}
		is := func(c *x509.Certificate, want bool) {
			t.Helper()
			user, err := a.Authenticate(&http.Request{TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}}})
			if in := user != nil && err == nil; in != want || in && user.Username != c.Subject.CommonName {
				t.Errorf("%s: %+v, %v", c.Subject.CommonName, user, err)
			}
		}
		is(before, true)
		is(after, false)
		authorities(after)
		time.Sleep(10 * time.Second)
		is(before, false)
		is(after, true)
		if user, err := a.Authenticate(&http.Request{Header: http.Header{"Authorization": {"Bearer secret"}}}); user == nil || err != nil {
			t.Error("with the token:", user, err)
		}
	})
	if _, err := accessOf(&options{kubelet: &v1beta1.KubeletConfiguration{Authentication: v1beta1.KubeletAuthentication{X509: v1beta1.KubeletX509Authentication{ClientCAFile: "/no/such"}}}}, nil, "", observe.To{}); err == nil {
		t.Error("a file that is not there is no error")
	}
}

// An agent may run for more than the year for which its own certificate is good.
func TestItsOwnCertificateIsMadeAnewInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, err := parse([]string{"--pod-manifest-path=/m", "--root-dir=" + t.TempDir()}, &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		get, err := servingOf(o, nil, observe.To{})
		if err != nil {
			t.Fatal(err)
		}
		var last *tls.Certificate
		made := 0
		for range 36 { // months
			cert, err := get(nil)
			if err != nil || !time.Now().Before(cert.Leaf.NotAfter) {
				t.Fatalf("at %v: %+v, %v", time.Now(), cert, err)
			}
			if cert != last {
				made, last = made+1, cert
			}
			b, err := os.ReadFile(publicPath(o))
			if block, _ := pem.Decode(b); err != nil || !bytes.Equal(block.Bytes, cert.Certificate[0]) {
				t.Fatal("clients on this machine know another one", err)
			}
			time.Sleep(lastMonth)
		}
		if made != 3 {
			t.Errorf("%d certificates in three years", made)
		}
	})
}

// Whoever looks at the health port restarts what does not answer: a container runtime that is away is no reason for that.
func TestTheHealthPortSaysOnlyThatTheAgentAnswers(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := int32(free.Addr().(*net.TCPAddr).Port)
	free.Close()
	var b build
	o := &options{kubelet: &v1beta1.KubeletConfiguration{HealthzPort: &port, HealthzBindAddress: "127.0.0.1"}}
	c := server.Config{Pods: &syncloop.Roster{}, Health: map[string]func() error{"runtime": func() error { return errors.New("away") }}}
	all := fronts(&b, o, nil, c, slog.New(slog.DiscardHandler))
	if b.err != nil || len(all) != 1 {
		t.Fatalf("%d servers, %v", len(all), b.err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- all[0].Run(ctx) }()
	if code := untilAnswered(t, fmt.Sprintf("http://127.0.0.1:%d/healthz", port)); code != http.StatusOK {
		t.Errorf("answer %d", code)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// untilAnswered asks until somebody listens.
func untilAnswered(t *testing.T, url string) (code int) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for t.Context().Err() == nil {
		if resp, err := client.Get(url); err == nil {
			resp.Body.Close()
			return resp.StatusCode
		}
	}
	return 0
}

// kubectl exec has its command in the address of the request, a whole script as well.
func TestACommandMayBeAWholeScript(t *testing.T) {
	var command []string
	w, err := newWeb("127.0.0.1", 0, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { command = r.URL.Query()["command"] }), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	script := strings.Repeat("x", 128<<10) // the most that Linux takes as one argument
	if code := untilAnswered(t, "http://"+w.listener.Addr().String()+"/exec/default/web/app?command=sh&command=-c&command="+script); code != http.StatusOK {
		t.Errorf("answer %d", code)
	}
	stop()
	if err := <-done; err != nil || len(command) != 3 || command[2] != script {
		t.Errorf("%d words, %v", len(command), err)
	}
}
