package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

func TestHealthFollowsWarmUpAndFlips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := handler(time.Now(), 3*time.Second)
		get := func(path string, want int) {
			t.Helper()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
			if w.Code != want {
				t.Errorf("GET %s: %d, want %d", path, w.Code, want)
			}
		}
		get("/", http.StatusOK)
		get("/healthz", http.StatusServiceUnavailable)
		time.Sleep(3 * time.Second)
		get("/healthz", http.StatusOK)
		get("/fail", http.StatusOK)
		get("/healthz", http.StatusInternalServerError)
		get("/ok", http.StatusOK)
		get("/healthz", http.StatusOK)
		get("/nothing", http.StatusNotFound)
	})
}
