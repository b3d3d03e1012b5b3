package main

import (
	"context"
	"log/slog"
	"net/http"

	authnv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/kubeapi"
	"github.com/kubeletkit/kubeletkit/kubeapi/access"
	"github.com/kubeletkit/kubeletkit/kubeapi/certificate"
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/podruntime"
	"github.com/kubeletkit/kubeletkit/server"
	"github.com/kubeletkit/kubeletkit/staticpod"
	"github.com/kubeletkit/kubeletkit/stats"
	"github.com/kubeletkit/kubeletkit/status"
	"github.com/kubeletkit/kubeletkit/status/nodestatus"
	"github.com/kubeletkit/kubeletkit/syncloop"
	"github.com/kubeletkit/kubeletkit/syncloop/offline"
	"github.com/kubeletkit/kubeletkit/volume"
)

// kubeVersion is the kubelet whose behaviour this agent has: by it schedulers and upgrades judge what a node can do.
const kubeVersion = "v1.37.2"

// member is the part of the agent that makes this node one of a cluster. It is nil on a node without a kubeconfig.
type member struct {
	renewed *certificate.Manager // nil: the client certificate stays
	client  *kubeapi.Client
	watched *kubeapi.Objects
	objects objects            // those, perhaps with what an offline cache remembers
	source  syncloop.PodSource // likewise
	events  *kubeapi.Events
	kick    chan struct{} // something about the node has changed

	serving *certificate.Manager // nil: the API server signs none
	sink    *kubeapi.Sink
	mirrors *staticpod.Mirrors
	node    *nodestatus.Reporter
}

// objects are what pods refer to.
type objects interface {
	podruntime.Objects
	volume.Tokens
	Services(ctx context.Context, namespace string) ([]*v1.Service, error)
	Class(name string) (handler string, err error)
}

// join makes what everything else needs of the API server.
func join(b *build, o *options, obs observe.To) *member {
	if !o.member() || b.err != nil {
		return nil
	}
	m := &member{kick: make(chan struct{}, 1)}
	var c credentials
	c, b.err = credentialsOf(o, late(func() certificate.Requester { return m.client }), obs)
	m.renewed = c.renewed
	k := o.kubelet
	m.client = one(b, kubeapi.New, kubeapi.Config{
		REST: c.rest, Node: o.nodeName, Observe: obs, Heartbeat: min(k.NodeStatusUpdateFrequency.Duration, o.lease()),
		QPS: float32(value(k.KubeAPIQPS)), Burst: int(k.KubeAPIBurst), EventQPS: float32(orNone(value(k.EventRecordQPS))), EventBurst: int(k.EventBurst),
	})
	if b.err != nil {
		return nil
	}
	m.newServing(b, o, obs)
	m.watched, m.events = kubeapi.NewObjects(m.client), kubeapi.NewEvents(m.client)
	m.objects, m.source = m.watched, &kubeapi.Source{Client: m.client, Mirrors: func(pods []*v1.Pod) { m.mirrors.Show(pods) }}
	if o.offlineDir != "" {
		obs.Events = m.events
		cache := one(b, offline.New, offline.Config{Dir: o.offlineDir, Key: o.offlineKey, Source: m.source, Objects: m.watched, Observe: obs})
		m.objects, m.source = cache, cache
	}
	m.sink = &kubeapi.Sink{Client: m.client, Mirror: func(static *v1.Pod) *v1.Pod { return m.mirrors.MirrorOf(static.UID) }}
	return m
}

// value is what a pointer points to, zero for none.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// membership is all that the node's own report and the mirror pods are made of.
type membership struct {
	roster   *syncloop.Roster
	statuses *status.Manager
	engine   *cri.Engine
	stats    *stats.Collector
	guard    guards
	pleg     func() error // why it cannot be trusted
}

// report makes what tells the cluster of this node and its static pods.
func (m *member) report(b *build, o *options, p membership, obs func(string) observe.To) {
	if m == nil {
		return
	}
	m.mirrors = one(b, staticpod.NewMirrors, staticpod.MirrorConfig{
		Client: m.client, Node: m.client.Node, Pods: p.roster.Static, Removable: p.roster.Removable, Changed: p.statuses.Again, Observe: obs("mirrors"),
	})
	m.node = one(b, nodestatus.New, nodestatus.Config{
		Name: o.nodeName, Initial: one(b, nodestatus.Initial, registration(o)), Setters: setters(b, o, p), Sink: m.client,
		NoRegister: !value(o.kubelet.RegisterNode), Seen: m.client.Node, Failing: m.client.CloseIdle, Kick: m.kick,
		Every: o.kubelet.NodeStatusUpdateFrequency.Duration, Report: o.kubelet.NodeStatusReportFrequency.Duration, Observe: obs("node"),
	})
}

func registration(o *options) nodestatus.Registration {
	return nodestatus.Registration{
		Name: o.nodeName, Labels: o.flags.NodeLabels, Taints: o.kubelet.RegisterWithTaints, ProviderID: o.kubelet.ProviderID,
		ExternalCloud: o.flags.CloudProvider != "", AttachByOthers: true,
	}
}

// setters are what the node says of itself, in the kubelet's order.
func setters(b *build, o *options, p membership) []nodestatus.Setter {
	engine := nodestatus.NewEngine(p.engine.Info)
	return []nodestatus.Setter{
		nodestatus.Addresses(nodestatus.Addressing{Hostname: o.nodeName, NodeIPs: o.nodeIPs, ExternalCloud: o.flags.CloudProvider != ""}),
		nodestatus.MachineInfo(machineOf(p.stats)),
		nodestatus.VersionInfo(kubeVersion),
		one(b, nodestatus.Capacity, sizes(b, o, p.stats)),
		nodestatus.DeclaredFeatures(features()...),
		nodestatus.DaemonEndpoints(o.kubelet.Port),
		nodestatus.Images(p.engine.ListImages, int(value(o.kubelet.NodeStatusMaxImages))),
		engine.SetNode,
		nodestatus.VolumesInUse(volumesOfOthers(o.flags.RootDir, host("/"))),
		nodestatus.Pressure(p.guard.pressure),
		nodestatus.Ready(engine.Up, p.pleg, engine.Ready, engine.Network, p.guard.up),
	}
}

// kickNode has the node's status computed and sent now. It never blocks.
func (m *member) kickNode() {
	if m == nil {
		return
	}
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// ground are the parts that everything else stands on, reports those that tell the cluster.
func (m *member) ground(o *options) []runner {
	if m == nil {
		return nil
	}
	parts := []runner{m.client, m.watched, m.events, &kubeapi.Lease{Client: m.client, Duration: o.lease()}}
	for _, c := range []*certificate.Manager{m.renewed, m.serving} {
		if c != nil {
			parts = append(parts, c)
		}
	}
	return parts
}

func (m *member) reports() []runner {
	if m == nil {
		return nil
	}
	return []runner{m.node, m.mirrors}
}

// nodeObject is the Node object, nil while it is not known.
func (m *member) nodeObject() *v1.Node {
	if m == nil {
		return nil
	}
	return m.client.Node()
}

// freshNode asks the server for the Node object; nil without one.
func (m *member) freshNode() func(ctx context.Context) (*v1.Node, error) {
	if m == nil {
		return nil
	}
	return m.client.Get
}

// features are what pods may need and schedulers look for: all that this agent can do of what nodes of today declare.
func features() []string {
	return []string{"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"}
}

// statusSink is where statuses go: the API server, or without one a line in the log.
func (m *member) statusSink(log *slog.Logger) status.Sink {
	if m == nil {
		return &statusLog{log: log.With("component", "status"), phases: map[types.UID]v1.PodPhase{}}
	}
	return m.sink
}

// sources are all that say which pods this node is to run. Mirrors are made soon after static pods come.
func (m *member) sources(b *build, o *options, obs observe.To) map[string]syncloop.PodSource {
	all := map[string]syncloop.PodSource{}
	if o.kubelet.StaticPodPath != "" {
		all["file"] = m.mirrored(one(b, staticpod.NewDir, staticpod.Config{
			Path: o.kubelet.StaticPodPath, Node: o.nodeName, Rescan: o.kubelet.FileCheckFrequency.Duration, Observe: obs,
		}))
	}
	if o.kubelet.StaticPodURL != "" {
		all["http"] = m.mirrored(one(b, staticpod.NewURL, staticpod.URLConfig{
			URL: o.kubelet.StaticPodURL, Header: o.kubelet.StaticPodURLHeader, Node: o.nodeName, Every: o.kubelet.HTTPCheckFrequency.Duration, Observe: obs,
		}))
	}
	if m != nil {
		all["api"] = m.source
	}
	return all
}

func (m *member) mirrored(s syncloop.PodSource) syncloop.PodSource {
	if m == nil {
		return s
	}
	return then{s, func() { m.mirrors.Wake() }}
}

// then is a source that calls news after each delivery.
type then struct {
	syncloop.PodSource
	news func()
}

// Run delivers what the source does.
func (t then) Run(ctx context.Context, set func([]*v1.Pod, bool)) error {
	return t.PodSource.Run(ctx, func(pods []*v1.Pod, complete bool) {
		set(pods, complete)
		t.news()
	})
}

// gate decides who may use the node's API: the administrator of this machine with the token that lies on it, and whom the
// cluster lets in.
type gate struct {
	local   server.AdminAccess
	cluster *access.Access
}

// local is who shows the token.
const localAdmin = "kubeletkit:local-admin"

// Authenticate says who asks.
func (g gate) Authenticate(r *http.Request) (*authnv1.UserInfo, error) {
	if user, err := g.local.Authenticate(r); user != nil && err == nil {
		user.Username = localAdmin
		return user, nil
	}
	return g.cluster.Authenticate(r)
}

// Authorize says whether they may.
func (g gate) Authorize(ctx context.Context, user *authnv1.UserInfo, verb, resource, subresource string) (bool, error) {
	if user != nil && user.Username == localAdmin {
		return true, nil
	}
	return g.cluster.Authorize(ctx, user, verb, resource, subresource)
}

// gateOf makes the gate of a member.
func (m *member) gateOf(o *options, token string, obs observe.To) (gate, error) {
	auth, authz := o.kubelet.Authentication, o.kubelet.Authorization
	c := access.Config{
		Node: o.nodeName, ClientCAFile: auth.X509.ClientCAFile, Anonymous: value(auth.Anonymous.Enabled), Observe: obs,
		CacheAuthenticated: auth.Webhook.CacheTTL.Duration, CacheAuthorized: authz.Webhook.CacheAuthorizedTTL.Duration,
		CacheDenied: authz.Webhook.CacheUnauthorizedTTL.Duration,
	}
	if value(auth.Webhook.Enabled) {
		c.Tokens = m.client
	}
	if authz.Mode == "AlwaysAllow" {
		c.AlwaysAllow = true
	} else {
		c.Access = m.client
	}
	a, err := access.New(c)
	return gate{server.AdminAccess{Token: token}, a}, err
}
