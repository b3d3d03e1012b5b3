package config

import (
	"crypto/tls"
	"fmt"
	"slices"

	"k8s.io/kubelet/config/v1beta1"
)

// TLS is how the server speaks: oldest version, cipher suites and curves of a valid configuration. Nothing given is TLS 1.2 and
// what Go prefers. Certificates are the caller's.
func TLS(c *v1beta1.KubeletConfiguration) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.TLSMinVersion != "" {
		version, ok := tlsVersions()[c.TLSMinVersion]
		if !ok {
			return nil, fmt.Errorf("tlsMinVersion: is %q; it must be VersionTLS12 or VersionTLS13, or for old clients VersionTLS10 or VersionTLS11", c.TLSMinVersion)
		}
		config.MinVersion = version
	}
	suites := cipherSuites()
	for i, name := range c.TLSCipherSuites {
		id, ok := suites[name]
		if !ok {
			return nil, fmt.Errorf("tlsCipherSuites[%d]: is %q; it must be a cipher suite of Go's crypto/tls, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", i, name)
		}
		config.CipherSuites = append(config.CipherSuites, id)
	}
	for i, id := range c.TLSCurvePreferences {
		curve := tls.CurveID(id) //nolint:gosec // compared below
		if int32(curve) != id || !slices.Contains(curves(), curve) || slices.Contains(config.CurvePreferences, curve) {
			return nil, fmt.Errorf("tlsCurvePreferences[%d]: is %d; it must be a curve of Go's crypto/tls, each given once, such as 29 for X25519", i, id)
		}
		config.CurvePreferences = append(config.CurvePreferences, curve)
	}
	return config, nil
}

func tlsVersions() map[string]uint16 {
	return map[string]uint16{
		"VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11,
		"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13,
	}
}

func cipherSuites() map[string]uint16 {
	out := map[string]uint16{
		// Names of older releases of Kubernetes.
		"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305":   tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	}
	for _, s := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
		out[s.Name] = s.ID
	}
	return out
}

func curves() []tls.CurveID {
	return []tls.CurveID{tls.CurveP256, tls.CurveP384, tls.CurveP521, tls.X25519, tls.X25519MLKEM768, tls.SecP256r1MLKEM768, tls.SecP384r1MLKEM1024}
}
