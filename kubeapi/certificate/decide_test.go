package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
)

func TestRenewAt(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	leaf := &x509.Certificate{NotBefore: start, NotAfter: start.Add(1000 * time.Hour)}
	for random, want := range map[float64]time.Duration{0: 700 * time.Hour, 0.5: 800 * time.Hour, 1: 900 * time.Hour} {
		if got := renewAt(leaf, random).Sub(start); (got - want).Abs() > time.Millisecond {
			t.Errorf("%v: after %v, want %v", random, got, want)
		}
	}
}

func TestWhy(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	leaf := func(change func(*x509.Certificate)) *x509.Certificate {
		c := &x509.Certificate{
			Subject: nodeSubject("n1"), DNSNames: []string{"n1", "n1.local"}, IPAddresses: []net.IP{net.ParseIP("10.0.0.1"), net.ParseIP("fd00::1")},
			NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		}
		if change != nil {
			change(c)
		}
		return c
	}
	want := &x509.CertificateRequest{Subject: nodeSubject("n1"), DNSNames: []string{"n1"}, IPAddresses: []net.IP{net.ParseIP("10.0.0.1").To4()}}
	for _, tt := range []struct {
		name string
		leaf *x509.Certificate
		want *x509.CertificateRequest
		in   time.Duration // until it is to be renewed
		why  string
	}{
		{"all well", leaf(nil), want, time.Minute, ""},
		{"nothing to ask for", nil, nil, 0, ""},
		{"nothing to ask for, even when it expired", leaf(func(c *x509.Certificate) { c.NotAfter = now.Add(-1) }), nil, 0, ""},
		{"none", nil, want, 0, "none"},
		{"expired", leaf(func(c *x509.Certificate) { c.NotAfter = now.Add(-1) }), want, time.Minute, "expired"},
		{"time", leaf(nil), want, 0, "time to renew"},
		{"the node has another name", leaf(nil), &x509.CertificateRequest{Subject: nodeSubject("n2")}, time.Minute, `"system:node:n1", not for "system:node:n2"`},
		{"a group is missing", leaf(func(c *x509.Certificate) { c.Subject.Organization = nil }), want, time.Minute, "system:nodes"},
		{"a name is missing", leaf(nil), &x509.CertificateRequest{Subject: nodeSubject("n1"), DNSNames: []string{"other"}}, time.Minute, "name other"},
		{"an address is missing", leaf(nil), &x509.CertificateRequest{Subject: nodeSubject("n1"), IPAddresses: []net.IP{net.ParseIP("10.0.0.2")}}, time.Minute, "10.0.0.2"},
		{"more groups than asked for are fine", leaf(func(c *x509.Certificate) { c.Subject.Organization = append(c.Subject.Organization, "x") }), want, time.Minute, ""},
	} {
		got := why(tt.leaf, tt.want, now.Add(tt.in), now)
		if (tt.why == "") != (got == "") || !strings.Contains(got, tt.why) {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

func TestServingRequest(t *testing.T) {
	type addresses = []v1.NodeAddress
	for _, tt := range []struct {
		name       string
		addresses  addresses
		names, ips []string
		nothing    bool
	}{
		{name: "no addresses", nothing: true},
		{name: "names alone are not enough", addresses: addresses{{Type: v1.NodeHostName, Address: "n1"}, {Type: v1.NodeInternalDNS, Address: "n1.local"}}, nothing: true},
		{name: "empty ones are left out", addresses: addresses{{Type: v1.NodeInternalIP}, {Type: v1.NodeHostName}}, nothing: true},
		{
			name: "sorted, once each", addresses: addresses{
				{Type: v1.NodeInternalIP, Address: "10.0.0.2"},
				{Type: v1.NodeExternalIP, Address: "10.0.0.1"},
				{Type: v1.NodeInternalIP, Address: "10.0.0.1"},
				{Type: v1.NodeHostName, Address: "z"},
				{Type: v1.NodeInternalDNS, Address: "a"},
				{Type: v1.NodeExternalDNS, Address: "z"},
			}, names: []string{"a", "z"}, ips: []string{"10.0.0.1", "10.0.0.2"},
		},
		{name: "a host name may be an address", addresses: addresses{{Type: v1.NodeHostName, Address: "10.0.0.1"}}, ips: []string{"10.0.0.1"}},
		{name: "an address that is none is left out", addresses: addresses{{Type: v1.NodeInternalIP, Address: "x"}, {Type: v1.NodeInternalIP, Address: "fd00::0001"}}, ips: []string{"fd00::1"}},
		{name: "an unknown type is left out", addresses: addresses{{Type: "Other", Address: "10.0.0.9"}, {Type: v1.NodeInternalIP, Address: "10.0.0.1"}}, ips: []string{"10.0.0.1"}},
		{name: "leading zeros are decimal", addresses: addresses{{Type: v1.NodeInternalIP, Address: "010.000.0.08"}}, ips: []string{"10.0.0.8"}},
	} {
		r := servingRequest("n1", tt.addresses)
		if r == nil {
			if !tt.nothing {
				t.Errorf("%s: nothing to ask for", tt.name)
			}
			continue
		}
		var ips []string
		for _, ip := range r.IPAddresses {
			ips = append(ips, ip.String())
		}
		if tt.nothing || !slices.Equal(r.DNSNames, tt.names) || !slices.Equal(ips, tt.ips) || r.Subject.CommonName != "system:node:n1" || !slices.Equal(r.Subject.Organization, []string{"system:nodes"}) {
			t.Errorf("%s: %q, %q, %v", tt.name, r.DNSNames, ips, r.Subject)
		}
	}
}

func TestParseIP(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "010.0.0.00": "10.0.0.0", "::1": "::1", "::ffff:1.2.3.4": "1.2.3.4",
		"": "", "n1": "", "1.2.3": "", "1.2.3.256": "", "1..2.3": "", "0.0.0.": "", "01.02.03.04.05": "", "::01.2.3.4": "",
	} {
		got := ""
		if ip := parseIP(in); ip != nil {
			got = ip.String()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestUsages(t *testing.T) {
	ec, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if got := usages(certv1.UsageClientAuth, ec.Public()); fmt.Sprint(got) != "[digital signature client auth]" {
		t.Errorf("ECDSA: %q", got)
	}
	if got := usages(certv1.UsageServerAuth, &rsa.PublicKey{}); fmt.Sprint(got) != "[digital signature key encipherment server auth]" {
		t.Errorf("RSA: %q", got)
	}
}

func TestRequestName(t *testing.T) {
	one, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	two, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	uses := usages(certv1.UsageClientAuth, one.Public())
	name := func(key *ecdsa.PrivateKey, r *x509.CertificateRequest) string {
		n, err := requestName(key.Public(), r, uses)
		if err != nil || !strings.HasPrefix(n, "node-csr-") || len(n) != len("node-csr-")+43 {
			t.Errorf("%q, %v", n, err)
		}
		return n
	}
	first := name(one, clientRequest("n1"))
	if name(one, clientRequest("n1")) != first {
		t.Error("one request has two names")
	}
	for what, other := range map[string]string{
		"another key":   name(two, clientRequest("n1")),
		"another node":  name(one, clientRequest("n2")),
		"addresses too": name(one, &x509.CertificateRequest{Subject: nodeSubject("n1"), IPAddresses: []net.IP{{1, 2, 3, 4}}}),
		"no group":      name(one, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1"}}),
		"parts that run together": name(one, &x509.CertificateRequest{Subject: pkix.Name{
			CommonName: "system:node:n1s", Organization: []string{"ystem:nodes"},
		}}),
	} {
		if other == first {
			t.Errorf("%s: the same name", what)
		}
	}
}

// The name that the kubelet's bootstrapping would give, worked out apart from this code.
func TestRequestNameIsTheKubelets(t *testing.T) {
	block, _ := pem.Decode([]byte(`-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEMZ5a0xvdDNSTtPhxNHjwPAeb93rK
ICSGzcdarY91Wqj1nFr/flQuVjk5f0mhA/nFvykGtvbUeyCArul2EuN/fg==
-----END PUBLIC KEY-----`))
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	name, err := requestName(key, clientRequest("n1"), usages(certv1.UsageClientAuth, key))
	if err != nil || name != "node-csr-82-fRKkjAuQOyOWprL45WesTPGqOlIQ7QyL7B2Fobfk" {
		t.Errorf("%s, %v", name, err)
	}
}

func TestVerdict(t *testing.T) {
	type types []certv1.RequestConditionType
	for _, tt := range []struct {
		name       string
		conditions types
		cert       string
		issued     bool
		failed     bool
	}{
		{name: "waiting"},
		{name: "approved, not yet signed", conditions: types{certv1.CertificateApproved}},
		{name: "signed", conditions: types{certv1.CertificateApproved}, cert: "x", issued: true},
		{name: "a certificate without approval is none", cert: "x"},
		{name: "denied", conditions: types{certv1.CertificateDenied}, failed: true},
		{name: "denied afterwards", conditions: types{certv1.CertificateApproved, certv1.CertificateDenied}, cert: "x", failed: true},
		{name: "failed", conditions: types{certv1.CertificateApproved, certv1.CertificateFailed}, failed: true},
		{name: "something else", conditions: types{"Other"}},
	} {
		r := &certv1.CertificateSigningRequest{Status: certv1.CertificateSigningRequestStatus{Certificate: []byte(tt.cert)}}
		for _, c := range tt.conditions {
			r.Status.Conditions = append(r.Status.Conditions, certv1.CertificateSigningRequestCondition{Type: c})
		}
		if certs, err := verdict(r); (certs != nil) != tt.issued || (err != nil) != tt.failed {
			t.Errorf("%s: %q, %v", tt.name, certs, err)
		}
	}
}
