package staticpod

import (
	"regexp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// probe checks a probe; kills is for liveness and startup, whose failure ends the container.
func (v *validator) probe(p *v1.Probe, at *field.Path, kills bool) {
	if p == nil {
		return
	}
	if n := count(p.Exec != nil, p.HTTPGet != nil, p.TCPSocket != nil, p.GRPC != nil); n != 1 {
		v.add(at, "must have exactly one of exec, httpGet, tcpSocket and grpc, but has %d", n)
	}
	v.exec(p.Exec, at.Child("exec"))
	v.httpGet(p.HTTPGet, at.Child("httpGet"))
	if p.TCPSocket != nil {
		v.port(p.TCPSocket.Port, at.Child("tcpSocket", "port"))
	}
	if p.GRPC != nil {
		v.portNumber(at.Child("grpc", "port"), p.GRPC.Port)
		if p.GRPC.Mode != nil {
			oneOf(v.report, at.Child("grpc", "mode"), *p.GRPC.Mode, v1.GRPCProbeModePlaintext, v1.GRPCProbeModeTLS)
		}
	}
	v.notNegative(at.Child("initialDelaySeconds"), p.InitialDelaySeconds)
	v.notNegative(at.Child("timeoutSeconds"), p.TimeoutSeconds)
	v.notNegative(at.Child("periodSeconds"), p.PeriodSeconds)
	v.notNegative(at.Child("successThreshold"), p.SuccessThreshold)
	v.notNegative(at.Child("failureThreshold"), p.FailureThreshold)
	if kills && p.SuccessThreshold > 1 {
		v.add(at.Child("successThreshold"), "must be 1 here")
	}
	switch g := p.TerminationGracePeriodSeconds; {
	case g != nil && !kills:
		v.add(at.Child("terminationGracePeriodSeconds"), "does not work here, as a readiness probe ends nothing; remove it")
	case g != nil && *g < 1:
		v.add(at.Child("terminationGracePeriodSeconds"), "%d is out of range; at least 1", *g)
	}
}

func (v *validator) lifecycle(l *v1.Lifecycle, at *field.Path) {
	v.hook(l.PostStart, at.Child("postStart"))
	v.hook(l.PreStop, at.Child("preStop"))
	if s := l.StopSignal; s != nil {
		at := at.Child("stopSignal")
		switch {
		case v.spec.OS == nil:
			v.add(at, "needs spec.os.name beside it")
		case !signals.MatchString(string(*s)) || v.spec.OS.Name == v1.Windows && *s != v1.SIGTERM && *s != v1.SIGKILL:
			v.add(at, "%s is not a signal there; use one such as SIGTERM", quote(*s))
		}
	}
}

// signals are those a container can be stopped with.
var signals = regexp.MustCompile(`^SIG(ABRT|ALRM|BUS|CHLD|CLD|CONT|FPE|HUP|ILL|INT|IO|IOT|KILL|PIPE|POLL|PROF|PWR|QUIT|SEGV|STKFLT|STOP|SYS|` +
	`TERM|TRAP|TSTP|TTIN|TTOU|URG|USR1|USR2|VTALRM|WINCH|XCPU|XFSZ|RTMIN(\+([1-9]|1[0-5]))?|RTMAX(-([1-9]|1[0-4]))?)$`)

func (v *validator) hook(h *v1.LifecycleHandler, at *field.Path) {
	if h == nil {
		return
	}
	if h.TCPSocket != nil {
		v.add(at.Child("tcpSocket"), "does not work in hooks; use exec, httpGet or sleep")
	} else if n := count(h.Exec != nil, h.HTTPGet != nil, h.Sleep != nil); n != 1 {
		v.add(at, "must have exactly one of exec, httpGet and sleep, but has %d", n)
	}
	v.exec(h.Exec, at.Child("exec"))
	v.httpGet(h.HTTPGet, at.Child("httpGet"))
	if grace := *v.spec.TerminationGracePeriodSeconds; h.Sleep != nil && (h.Sleep.Seconds < 0 || h.Sleep.Seconds > grace) {
		v.add(at.Child("sleep", "seconds"), "%d is out of range; 0 up to the grace period of the pod, %d", h.Sleep.Seconds, grace)
	}
}

func (v *validator) exec(e *v1.ExecAction, at *field.Path) {
	if e != nil && len(e.Command) == 0 {
		v.add(at.Child("command"), "is missing")
	}
}

func (v *validator) httpGet(h *v1.HTTPGetAction, at *field.Path) {
	if h == nil {
		return
	}
	v.port(h.Port, at.Child("port"))
	oneOf(v.report, at.Child("scheme"), h.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)
	for i, header := range h.HTTPHeaders {
		if len(validation.IsHTTPHeaderName(header.Name)) > 0 {
			v.add(at.Child("httpHeaders").Index(i).Child("name"), "%s is not the name of a header", quote(header.Name))
		}
	}
	if h.Protocol != nil {
		oneOf(v.report, at.Child("protocol"), *h.Protocol, v1.HTTPProtocolHTTP1, v1.HTTPProtocolHTTP2)
		if *h.Protocol == v1.HTTPProtocolHTTP2 && (h.Scheme != v1.URISchemeHTTP || h.Host != "") {
			v.add(at.Child("protocol"), "HTTP2 only works with scheme HTTP and without host")
		}
	}
}

// port checks a port that may be given by name.
func (v *validator) port(p intstr.IntOrString, at *field.Path) {
	if p.Type == intstr.String {
		v.portName(at, p.StrVal)
		return
	}
	v.portNumber(at, p.IntVal)
}

func (v *validator) notNegative(at *field.Path, n int32) {
	if n < 0 {
		v.add(at, "%d is out of range; it cannot be negative", n)
	}
}
