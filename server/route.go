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
	rights  []string // subresources of nodes, one of which the user must have; nil: as all paths that begin so
	verb    string   // empty: follows the method
	session bool     // worth a line in the log
	serve   func(http.ResponseWriter, *http.Request) error
}

// unknown holds for a path that is none: only who may ask there is told so.
func unknown(path string) route { return route{rights: rightsBelow(path)} }

// rightsBelow are the subresources of nodes, one of which is needed for paths that begin so, whether there is such a path or not.
func rightsBelow(path string) []string {
	const proxy = "proxy"
	switch first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); first {
	case "pods", "runningpods":
		return []string{"pods", proxy}
	case "healthz", "configz":
		return []string{first, proxy}
	case "stats", "metrics", "checkpoint", "statusz":
		return []string{first}
	case "logs":
		return []string{"log"}
	case "flagz":
		return []string{"configz"}
	}
	return []string{proxy}
}

// forDebugging says that a path is one of those that can be closed.
func forDebugging(path string) bool {
	switch first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); first {
	case "runningpods", "containerLogs", "exec", "attach", "portForward", "logs", "debug":
		return true
	}
	return false
}

// closed answers for paths that are not served, in the kubelet's words.
func closed(what string) func(http.ResponseWriter, *http.Request) error {
	return func(http.ResponseWriter, *http.Request) error { return fail(http.StatusMethodNotAllowed, "%s", what) }
}

func (h *handler) table() []route {
	get := []string{http.MethodGet}
	both := []string{http.MethodGet, http.MethodPost}
	routes := []route{
		{pattern: "/pods", methods: get, serve: h.pods},
		{pattern: "/runningpods", methods: get, serve: h.running},
		{pattern: "/containerLogs/{namespace}/{pod}/{container}", methods: get, serve: h.logs},
		{pattern: "/stats/summary", methods: both, serve: h.summary},
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
		routes = append(routes, route{pattern: s.pattern, methods: both, verb: "create", session: true, serve: s.serve})
	}
	for _, r := range slices.Clone(routes) { // these may end with a slash, the others may not: so has the kubelet them
		r.pattern += "/{$}"
		routes = append(routes, r)
	}
	routes = append(routes, []route{
		{pattern: "/healthz", serve: h.health},
		{pattern: "/healthz/{check}", serve: h.check},
		{pattern: "/containerLogs/", methods: get, serve: h.logsUsage},
		{pattern: "/configz", methods: get, serve: h.configz},
		{pattern: "/logs/", methods: get, serve: h.hostLogs},
		{pattern: "/debug/pods", methods: get, serve: h.timelines},
		{pattern: "/debug/gc", methods: both, serve: h.garbage},
		{pattern: "/debug/pprof/", methods: both, serve: h.profiles},
	}...)
	for path, m := range h.cfg.Metrics {
		routes = append(routes, route{pattern: path, rights: []string{"metrics"}, serve: func(w http.ResponseWriter, r *http.Request) error {
			m.ServeHTTP(w, r)
			return nil
		}})
	}
	for i := range routes {
		if routes[i].rights == nil {
			routes[i].rights = rightsBelow(routes[i].pattern)
		}
		switch pattern := routes[i].pattern; {
		case h.cfg.Closed && forDebugging(pattern):
			routes[i].methods, routes[i].serve = nil, closed("Debug endpoints are disabled.")
		case h.cfg.HostLogs == nil && pattern == "/logs/":
			routes[i].methods, routes[i].serve = nil, closed("logs endpoint is disabled.")
		case h.cfg.Profiles == nil && pattern == "/debug/pprof/":
			routes[i].methods, routes[i].serve = nil, closed("profiling endpoint is disabled.")
		}
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
		to = unknown(r.URL.Path)
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
