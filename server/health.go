package server

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// health answers for all checks together. Reasons are for who asks for one check.
func (h *handler) health(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	var report strings.Builder
	ok := true
	for _, name := range slices.Sorted(maps.Keys(h.checks())) {
		switch {
		case slices.Contains(q["exclude"], name):
			fmt.Fprintf(&report, "[+]%s excluded: ok\n", name)
		case h.checks()[name]() != nil:
			ok = false
			fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", name)
		default:
			fmt.Fprintf(&report, "[+]%s ok\n", name)
		}
	}
	switch {
	case !ok:
		http.Error(w, report.String()+"healthz check failed", http.StatusInternalServerError)
	case q.Has("verbose"):
		writeText(w, report.String()+"healthz check passed\n")
	default:
		writeText(w, "ok")
	}
	return nil
}

// check answers for one check.
func (h *handler) check(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("check")
	check := h.checks()[name]
	if check == nil {
		return fail(http.StatusNotFound, "there is no check %q; there: %s", name, list(slices.Collect(maps.Keys(h.checks()))))
	}
	if err := check(); err != nil {
		return fail(http.StatusInternalServerError, "internal server error: %v", err)
	}
	writeText(w, "ok")
	return nil
}

func (h *handler) checks() map[string]func() error {
	all := maps.Clone(h.cfg.Health)
	if all == nil {
		all = map[string]func() error{}
	}
	all["ping"] = func() error { return nil }
	return all
}

func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write([]byte(text)) // nobody is left to hear of it
}
