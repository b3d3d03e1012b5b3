package certificate

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func open(t testing.TB) *store {
	t.Helper()
	return &store{dir: filepath.Join(t.TempDir(), "pki"), prefix: "kubelet-client"}
}

func write(t testing.TB, path string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func names(t testing.TB, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

func TestAPairOnDisk(t *testing.T) {
	s, ca := open(t), newAuthority(t)
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.Local)
	cert, key := ca.pair(t, clientRequest("n1"))
	chain := append([]byte("# a comment\n"), cert...)
	chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})...)
	for range 2 { // within one second: neither is written over
		if _, err := s.save(chain, key, at); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(t, s.dir); got != "kubelet-client-2026-02-03-04-05-06.pem kubelet-client-2026-02-03-04-05-07.pem kubelet-client-current.pem" {
		t.Error(got)
	}
	target, err := os.Readlink(s.current())
	if err != nil || target != s.path("2026-02-03-04-05-07") || !filepath.IsAbs(target) {
		t.Errorf("%s, %v", target, err)
	}
	info, err := os.Stat(target)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	text, _ := os.ReadFile(target)
	var blocks []string
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		blocks = append(blocks, block.Type)
	}
	if strings.Join(blocks, ", ") != "CERTIFICATE, CERTIFICATE, EC PRIVATE KEY" || strings.Contains(string(text), "comment") {
		t.Errorf("%q", blocks)
	}
	if pair, file, err := s.load(); err != nil || file != s.current() || pair.Leaf.Subject.CommonName != "system:node:n1" || len(pair.Certificate) != 2 {
		t.Errorf("%s, %v", file, err)
	}
}

func TestWhichPairIsLoaded(t *testing.T) {
	ca := newAuthority(t)
	put := func(cert, key, node string) {
		c, k := ca.pair(t, clientRequest(node))
		if cert == key {
			write(t, cert, append(c, k...))
			return
		}
		write(t, cert, c)
		write(t, key, k)
	}
	s := open(t)
	s.certFile, s.keyFile = filepath.Join(s.dir, "given.crt"), filepath.Join(s.dir, "given.key")
	if _, _, err := s.load(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), s.current()) {
		t.Errorf("nothing there: %v", err)
	}
	for _, step := range []struct{ cert, key, node string }{
		{filepath.Join(s.dir, "kubelet-client.crt"), filepath.Join(s.dir, "kubelet-client.key"), "old"},
		{s.certFile, s.keyFile, "given"},
		{s.current(), s.current(), "current"},
	} {
		put(step.cert, step.key, step.node)
		pair, file, err := s.load()
		if err != nil || file != step.cert || pair.Leaf.Subject.CommonName != "system:node:"+step.node {
			t.Errorf("%s: %s, %v", step.node, file, err)
		}
	}
	write(t, s.current(), []byte("x"))
	if _, file, err := s.load(); err == nil || file != s.current() || !strings.Contains(err.Error(), s.current()) {
		t.Errorf("a damaged one is passed over: %s, %v", file, err)
	}
}

func TestAChangeOfTheLinkThatWasCut(t *testing.T) {
	s, ca := open(t), newAuthority(t)
	cert, key := ca.pair(t, clientRequest("n1"))
	if _, err := s.save(cert, key, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(s.current(), s.path("updated")); err != nil {
		t.Fatal(err)
	}
	if pair, _, err := s.load(); err != nil || pair == nil {
		t.Errorf("between removal and renaming: %v", err)
	}
	if err := os.Symlink("nowhere", s.path("updated")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.save(cert, key, time.Now()); err != nil {
		t.Errorf("a link that was left: %v", err)
	}
	if err := os.Remove(s.current()); err != nil {
		t.Fatal(err)
	}
	write(t, s.path("updated"), []byte("mine"))
	if _, _, err := s.load(); err == nil || !strings.Contains(err.Error(), s.path("updated")) {
		t.Errorf("a file in place of the link: %v", err)
	}
	if _, err := s.save(cert, key, time.Now()); err == nil {
		t.Error("a file in place of the link is written over")
	}
}

func TestAPlainFileInPlaceOfTheLinkIsKept(t *testing.T) {
	s, ca := open(t), newAuthority(t)
	cert, key := ca.pair(t, clientRequest("copied"))
	write(t, s.current(), append(cert, key...))
	at := time.Date(2025, 1, 2, 3, 4, 5, 0, time.Local)
	if err := os.Chtimes(s.current(), at, at); err != nil {
		t.Fatal(err)
	}
	cert, key = ca.pair(t, clientRequest("n1"))
	if _, err := s.save(cert, key, time.Date(2026, 1, 1, 0, 0, 0, 0, time.Local)); err != nil {
		t.Fatal(err)
	}
	if got := names(t, s.dir); got != "kubelet-client-2025-01-02-03-04-05.pem kubelet-client-2026-01-01-00-00-00.pem kubelet-client-current.pem" {
		t.Error(got)
	}
	if pair, _, err := s.load(); err != nil || pair.Leaf.Subject.CommonName != "system:node:n1" {
		t.Errorf("%v", err)
	}
}

func TestWhatDoesNotFitIsNotStored(t *testing.T) {
	s, ca := open(t), newAuthority(t)
	cert, key := ca.pair(t, clientRequest("n1"))
	_, other := ca.pair(t, clientRequest("n1"))
	for name, p := range map[string][2][]byte{
		"another's key": {cert, other}, "no certificate": {key, key}, "nothing": {nil, nil}, "no key": {cert, nil}, "garbage": {[]byte("x"), []byte("y")},
	} {
		if _, err := s.save(p[0], p[1], time.Now()); err == nil {
			t.Errorf("%s is stored", name)
		}
	}
	if _, err := os.Stat(s.dir); err == nil {
		t.Error("something is there now: " + names(t, s.dir))
	}
}

func TestTheKeyThatWaits(t *testing.T) {
	s, ca := open(t), newAuthority(t)
	first, text, err := s.pendingKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if again, _, err := s.pendingKey(nil); err != nil || !samePublic(again.Public(), first.Public()) {
		t.Errorf("asked again: another key, %v", err)
	}
	if info, err := os.Stat(s.keyPath()); err != nil || info.Mode() != 0o600 || s.keyPath() != filepath.Join(s.dir, "kubelet-client.key.tmp") {
		t.Errorf("%v, %v", info, err)
	}
	// The certificate was stored, and then the agent was killed.
	pair, err := s.save(ca.sign(first.Public(), clientRequest("n1")), text, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	next, _, err := s.pendingKey(pair.Leaf)
	if err != nil || samePublic(next.Public(), first.Public()) {
		t.Errorf("the key of the certificate at hand is used again, %v", err)
	}
	write(t, s.keyPath(), []byte("garbage"))
	if key, _, err := s.pendingKey(nil); err != nil || key == nil {
		t.Errorf("garbage: %v", err)
	}
	if err := errors.Join(s.dropKey(), s.dropKey()); err != nil {
		t.Error(err)
	}
}

func TestKeysInAllForms(t *testing.T) {
	_, text := newAuthority(t).pair(t, clientRequest("n1"))
	key, err := parseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := key.(*ecdsa.PrivateKey); !ok {
		t.Errorf("it is a %T", key)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	again, err := parseKey(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if err != nil || !samePublic(again.Public(), key.Public()) {
		t.Error(err)
	}
	for _, bad := range []string{"", "x", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"} {
		if _, err := parseKey([]byte(bad)); err == nil {
			t.Errorf("%q is a key", bad)
		}
	}
}

func FuzzStoredText(f *testing.F) {
	cert, key := newAuthority(f).pair(f, clientRequest("n1"))
	f.Add(cert, key)
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		_, _ = parseKey(key)
		_, _ = parseRequest(cert)
		_ = Good(cert, time.Now())
		if out, err := onlyCertificates(cert); (err == nil) != (len(out) > 0) {
			t.Errorf("%q, %v", out, err)
		}
	})
}
