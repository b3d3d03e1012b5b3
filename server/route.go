package server

import (
	"net/http"
	"slices"
	"strings"

	authnv1 "k8s.io/api/authentication/v1"
)

// route is one path of the API.
type route struct {
	pattern string
	methods []string // empty: all
	rights  []string // subresources of nodes, one of which the user must have
	verb    string   // empty: follows the method
	session bool     // worth a line in the log
	serve   func(http.ResponseWriter, *http.Request) error
}

// unknown holds for paths that are none: who may not do anything here is not told what there is.
func unknown() route { return route{rights: []string{"proxy"}} }

func (h *handler) table() []route {
	get := []string{http.MethodGet}
	upgrade := []string{http.MethodGet, http.MethodPost}
	proxy := []string{"proxy"}
	pods := []string{"pods", "proxy"}
	routes := []route{
		{pattern: "/healthz", rights: []string{"healthz", "proxy"}, serve: h.health},
		{pattern: "/healthz/{check}", rights: []string{"healthz", "proxy"}, serve: h.check},
		{pattern: "/pods", methods: get, rights: pods, serve: h.pods},
		{pattern: "/pods/{$}", methods: get, rights: pods, serve: h.pods},
		{pattern: "/runningpods", methods: get, rights: pods, serve: h.running},
		{pattern: "/runningpods/{$}", methods: get, rights: pods, serve: h.running},
		{pattern: "/containerLogs/", methods: get, rights: proxy, serve: h.logsUsage},
		{pattern: "/containerLogs/{namespace}/{pod}/{container}", methods: get, rights: proxy, serve: h.logs},
		{pattern: "/stats/summary", methods: []string{http.MethodGet, http.MethodPost}, rights: []string{"stats", "proxy"}, serve: h.summary},
		{pattern: "/configz", methods: get, rights: []string{"configz", "proxy"}, serve: h.configz},
		{pattern: "/debug/pods", methods: get, rights: proxy, serve: h.timelines},
		{pattern: "/debug/gc", methods: upgrade, rights: proxy, serve: h.garbage},
		{pattern: "/debug/pprof/", methods: upgrade, rights: proxy, serve: h.profiles},
	}
	for _, s := range []struct {
		pattern string
		serve   func(http.ResponseWriter, *http.Request) error
	}{
		{"/exec/{namespace}/{pod}/{container}", h.exec},
		{"/exec/{namespace}/{pod}/{uid}/{container}", h.exec},
		{"/attach/{namespace}/{pod}/{container}", h.attach},
		{"/attach/{namespace}/{pod}/{uid}/{container}", h.attach},
		{"/portForward/{namespace}/{pod}", h.portForward},
		{"/portForward/{namespace}/{pod}/{uid}", h.portForward},
	} {
		routes = append(routes, route{pattern: s.pattern, methods: upgrade, rights: proxy, verb: "create", session: true, serve: s.serve})
	}
	for path, m := range h.cfg.Metrics {
		routes = append(routes, route{pattern: path, rights: []string{"metrics"}, serve: func(w http.ResponseWriter, r *http.Request) error {
			m.ServeHTTP(w, r)
			return nil
		}})
	}
	return routes
}

// handler serves a route to who was let in.
func (r route) handler(h *handler) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if len(r.methods) > 0 && !slices.Contains(r.methods, req.Method) {
			w.Header().Set("Allow", strings.Join(r.methods, ", "))
			h.answer(w, req, fail(http.StatusMethodNotAllowed, "method %s is not allowed here, only %s", req.Method, strings.Join(r.methods, " and ")))
			return
		}
		if err := r.serve(w, req); err != nil {
			h.answer(w, req, err)
		}
	}
}

// admit finds out who asks and whether they may, and answers those who may not.
func (h *handler) admit(w http.ResponseWriter, r *http.Request) bool {
	var user *authnv1.UserInfo
	var err error
	if h.cfg.Access != nil {
		user, err = h.cfg.Access.Authenticate(r)
	}
	if user == nil || err != nil {
		h.log.Debug("request from nobody", "method", r.Method, "path", r.URL.Path, "remote", r.RemoteAddr, "err", err)
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return false
	}

	_, pattern := h.mux.Handler(r)
	to, ok := h.routes[pattern]
	if !ok {
		to = unknown()
	}
	verb := verbOf(to, r.Method)
	for _, right := range to.rights {
		ok, err := h.cfg.Access.Authorize(r.Context(), user, verb, "nodes", right)
		if err != nil {
			h.log.Warn("authorization went wrong", "user", user.Username, "verb", verb, "subresource", right, "err", err)
			h.answer(w, r, fail(http.StatusInternalServerError, "Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)", user.Username, verb, right))
			return false
		}
		if ok {
			if to.session {
				h.log.Info("session asked for", "user", user.Username, "path", r.URL.Path, "remote", r.RemoteAddr)
			}
			return true
		}
	}
	h.answer(w, r, fail(http.StatusForbidden, "Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)", user.Username, verb, to.rights))
	return false
}

// verbOf is the verb of a request. HEAD, OPTIONS and others have none.
func verbOf(to route, method string) string {
	if to.verb != "" {
		return to.verb
	}
	return map[string]string{
		http.MethodPost: "create", http.MethodGet: "get", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[method]
}
