package podruntime

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/podspec"
)

// masterService is the one every pod is told of: by it a program in the cluster finds the API server.
const masterService = "kubernetes"

// serviceLinks are the variables that tell a pod of services: of those of its namespace unless it wants none, and always of
// the API server's. A pod from a file does not wait for services that are not known yet.
func serviceLinks(ctx context.Context, cfg *Config, pod *v1.Pod) (environ, error) {
	var e environ
	if cfg.Services == nil {
		return e, nil
	}
	services, err := linked(ctx, cfg, pod)
	switch {
	case err != nil && podspec.Static(pod):
		return e, nil
	case err != nil:
		return e, fmt.Errorf("services for environment variables: %w", err)
	}
	for _, s := range services {
		e.link(s)
	}
	return e, nil
}

// linked are the services a pod is told of, by name. One of its own namespace that is named like the API server's wins.
func linked(ctx context.Context, cfg *Config, pod *v1.Pod) ([]*v1.Service, error) {
	byName := map[string]*v1.Service{}
	take := func(namespace string, wanted func(*v1.Service) bool) error {
		services, err := cfg.Services(ctx, namespace)
		for _, s := range services {
			if ip := s.Spec.ClusterIP; ip != "" && ip != v1.ClusterIPNone && len(s.Spec.Ports) > 0 && wanted(s) {
				byName[s.Name] = s
			}
		}
		return err
	}
	if err := take(metav1.NamespaceDefault, func(s *v1.Service) bool { return s.Name == masterService }); err != nil {
		return nil, err
	}
	if links := pod.Spec.EnableServiceLinks; links == nil || *links {
		if err := take(pod.Namespace, func(*v1.Service) bool { return true }); err != nil {
			return nil, err
		}
	}
	out := make([]*v1.Service, 0, len(byName))
	for _, s := range byName {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *v1.Service) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// link sets the variables of one service: where it is, then each port by name, then each port in the way of docker links.
func (e *environ) link(s *v1.Service) {
	variable := func(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
	name, ip := variable(s.Name), s.Spec.ClusterIP
	e.set(name+"_SERVICE_HOST", ip)
	e.set(name+"_SERVICE_PORT", number(s.Spec.Ports[0].Port))
	for _, p := range s.Spec.Ports {
		if p.Name != "" {
			e.set(name+"_SERVICE_PORT_"+variable(p.Name), number(p.Port))
		}
	}
	for i, p := range s.Spec.Ports {
		protocol := string(p.Protocol)
		if protocol == "" {
			protocol = string(v1.ProtocolTCP)
		}
		lower := strings.ToLower(protocol)
		url := lower + "://" + net.JoinHostPort(ip, number(p.Port))
		if i == 0 {
			e.set(name+"_PORT", url)
		}
		port := name + "_PORT_" + number(p.Port) + "_" + strings.ToUpper(protocol)
		e.set(port, url)
		e.set(port+"_PROTO", lower)
		e.set(port+"_PORT", number(p.Port))
		e.set(port+"_ADDR", ip)
	}
}

func number(n int32) string { return strconv.Itoa(int(n)) }
