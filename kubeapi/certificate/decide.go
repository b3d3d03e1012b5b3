package certificate

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	certv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
)

const (
	earliest = 0.7 // of a certificate's life, when it is renewed
	latest   = 0.9
)

// renewAt is the time to renew a certificate, at random (0 to 1) in the window.
func renewAt(leaf *x509.Certificate, random float64) time.Time {
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	return leaf.NotBefore.Add(time.Duration(float64(life) * (earliest + random*(latest-earliest))))
}

// why a certificate is to be asked for now; empty: there is no need, or nothing to ask for.
func why(leaf *x509.Certificate, want *x509.CertificateRequest, renew, now time.Time) string {
	switch {
	case want == nil:
		return ""
	case leaf == nil:
		return "there is none"
	case now.After(leaf.NotAfter):
		return "it has expired"
	case !now.Before(renew):
		return "it is time to renew it"
	}
	return missing(leaf, want)
}

// missing says what was asked for and is not in a certificate. More than asked for is fine.
func missing(leaf *x509.Certificate, want *x509.CertificateRequest) string {
	if other := otherSubject(leaf, want); other != "" {
		return other
	}
	for _, name := range want.DNSNames {
		if !slices.Contains(leaf.DNSNames, name) {
			return "it lacks the name " + name
		}
	}
	for _, ip := range want.IPAddresses {
		if !slices.ContainsFunc(leaf.IPAddresses, ip.Equal) {
			return "it lacks the address " + ip.String()
		}
	}
	return ""
}

// otherSubject says how a certificate is somebody else's.
func otherSubject(leaf *x509.Certificate, want *x509.CertificateRequest) string {
	if leaf.Subject.CommonName != want.Subject.CommonName {
		return fmt.Sprintf("it is for %q, not for %q", leaf.Subject.CommonName, want.Subject.CommonName)
	}
	for _, group := range want.Subject.Organization {
		if !slices.Contains(leaf.Subject.Organization, group) {
			return "it lacks the group " + group
		}
	}
	return ""
}

// nodeSubject is who a node is.
func nodeSubject(node string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
}

// clientRequest is what a node's client certificate is asked for with.
func clientRequest(node string) *x509.CertificateRequest {
	return &x509.CertificateRequest{Subject: nodeSubject(node)}
}

// servingRequest is what a node's serving certificate is asked for with; nil as long as no IP address is known.
func servingRequest(node string, addresses []v1.NodeAddress) *x509.CertificateRequest {
	r := &x509.CertificateRequest{Subject: nodeSubject(node)}
	var ips []string
	for _, a := range addresses {
		ip := parseIP(a.Address)
		switch {
		case a.Address == "":
		case ip != nil && (a.Type == v1.NodeHostName || a.Type == v1.NodeInternalIP || a.Type == v1.NodeExternalIP):
			ips = append(ips, ip.String())
		case a.Type == v1.NodeHostName, a.Type == v1.NodeInternalDNS, a.Type == v1.NodeExternalDNS:
			r.DNSNames = append(r.DNSNames, a.Address)
		}
	}
	slices.Sort(r.DNSNames)
	r.DNSNames = slices.Compact(r.DNSNames)
	slices.Sort(ips)
	for _, ip := range slices.Compact(ips) {
		r.IPAddresses = append(r.IPAddresses, parseIP(ip))
	}
	if len(ips) == 0 {
		return nil
	}
	return r
}

// parseIP also takes IPv4 addresses with leading zeros, decimal, as Kubernetes always has.
func parseIP(s string) net.IP {
	if ip := net.ParseIP(s); ip != nil || strings.Contains(s, ":") {
		return ip
	}
	parts := strings.Split(s, ".")
	for i, p := range parts {
		if t := strings.TrimLeft(p, "0"); p != "" {
			parts[i] = t + "0"[min(len(t), 1):]
		}
	}
	return net.ParseIP(strings.Join(parts, "."))
}

// sameRequest says that two requests ask for the same.
func sameRequest(a, b *x509.CertificateRequest) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Subject.CommonName == b.Subject.CommonName && slices.Equal(a.Subject.Organization, b.Subject.Organization) &&
		slices.Equal(a.DNSNames, b.DNSNames) && slices.EqualFunc(a.IPAddresses, b.IPAddresses, net.IP.Equal)
}

// usages are what a certificate of this kind and key is good for; the kind is UsageClientAuth or UsageServerAuth.
func usages(kind certv1.KeyUsage, key crypto.PublicKey) []certv1.KeyUsage {
	if _, ok := key.(*rsa.PublicKey); ok {
		return []certv1.KeyUsage{certv1.UsageDigitalSignature, certv1.UsageKeyEncipherment, kind}
	}
	return []certv1.KeyUsage{certv1.UsageDigitalSignature, kind}
}

// requestName is made of all a request asks for, the key first of all, so that the same request has the same name. For a
// client certificate it is the name the kubelet gives.
func requestName(key crypto.PublicKey, want *x509.CertificateRequest, uses []certv1.KeyUsage) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", err
	}
	parts := []string{string(der), want.Subject.CommonName}
	parts = append(parts, want.Subject.Organization...)
	for _, u := range uses {
		parts = append(parts, string(u))
	}
	parts = append(parts, want.DNSNames...)
	for _, ip := range want.IPAddresses {
		parts = append(parts, ip.String())
	}
	digest := sha512.New512_256()
	for _, p := range parts { // what separates them is not in the alphabet of what they are written in
		_, _ = digest.Write([]byte(base64.RawURLEncoding.EncodeToString([]byte(p)) + "|")) // never fails
	}
	return "node-csr-" + base64.RawURLEncoding.EncodeToString(digest.Sum(nil)), nil
}
