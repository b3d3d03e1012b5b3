package probe_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/kubeletkit/kubeletkit/probe"
)

func BenchmarkHTTP(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	for name, client := range map[string]*http.Client{"own client": nil, "shared client": probe.Client()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if res, text, err := probe.HTTP(b.Context(), probe.HTTPTarget{URL: s.URL, Client: client}); res != probe.Success {
					b.Fatal(res, text, err)
				}
			}
		})
	}
}

func BenchmarkTCP(b *testing.B) {
	s := httptest.NewServer(nil)
	defer s.Close()
	b.ReportAllocs()
	for b.Loop() {
		if res, text, err := probe.TCP(b.Context(), s.Listener.Addr().String()); res != probe.Success {
			b.Fatal(res, text, err)
		}
	}
}
