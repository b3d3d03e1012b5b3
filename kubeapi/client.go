package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	certv1 "k8s.io/api/certificates/v1"
	coordv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubeletkit/kubeletkit/observe"
)

// Config describes a Client. REST and Node are required; every other field works at zero.
type Config struct {
	REST *rest.Config // where the server is and who we are; content type, rate limits and user agent are set here
	Node string       // name of this node

	QPS        float32 // requests a second, heartbeats and events aside; 0 means 50
	Burst      int     // 0 means 100
	EventQPS   float32 // events a second; 0 means 50, below 0 any number
	EventBurst int     // 0 means 100

	Heartbeat time.Duration // how long a node status or a lease may take; 0 means 10 s

	Observe observe.To
}

// Client is one set of connections to one API server, as one node. Run keeps what it watches for everybody: the Node.
type Client struct {
	cfg  Config
	log  *slog.Logger
	http *http.Client

	pods, heartbeat, events    rest.Interface // all of group "", each with limits of its own
	leases                     rest.Interface
	certificates, authn, authz rest.Interface
	classes, storage           rest.Interface

	asked *asked // for anything but heartbeats and events
	node  *watched[*v1.Node]
}

// asked is a limit that remembers when the last request passed it.
type asked struct {
	flowcontrol.RateLimiter

	at atomic.Int64 // Unix time in ns; 0: never
}

func (a *asked) last() time.Time { return time.Unix(0, a.at.Load()) }

func (a *asked) Wait(ctx context.Context) error {
	err := a.RateLimiter.Wait(ctx)
	a.at.Store(time.Now().UnixNano())
	return err
}

// scheme has the few groups that are spoken here. It is read-only, like what is made of it.
//
//nolint:gochecknoglobals // built once, read-only
var scheme = func() *kruntime.Scheme {
	s := kruntime.NewScheme()
	for _, add := range []func(*kruntime.Scheme) error{
		v1.AddToScheme, coordv1.AddToScheme, certv1.AddToScheme, authnv1.AddToScheme, authzv1.AddToScheme, nodev1.AddToScheme, storagev1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err) // two types of one name: nothing that input could cause
		}
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}()

//nolint:gochecknoglobals // built once, read-only
var (
	codecs     = serializer.NewCodecFactory(scheme)
	parameters = kruntime.NewParameterCodec(scheme)
)

const protobuf = "application/vnd.kubernetes.protobuf"

// New makes a Client at rest. It does not connect.
func New(cfg Config) (*Client, error) {
	if cfg.REST == nil || cfg.Node == "" {
		return nil, errors.New("kubeapi: REST and Node are required")
	}
	if cfg.QPS < 0 || cfg.Burst < 0 || cfg.EventBurst < 0 || cfg.Heartbeat < 0 {
		return nil, fmt.Errorf("kubeapi: QPS %v, Burst %d, EventBurst %d and Heartbeat %v must not be negative", cfg.QPS, cfg.Burst, cfg.EventBurst, cfg.Heartbeat)
	}
	if cfg.QPS == 0 {
		cfg.QPS = 50
	}
	if cfg.Burst == 0 {
		cfg.Burst = 100
	}
	if cfg.EventQPS == 0 {
		cfg.EventQPS = 50
	}
	if cfg.EventBurst == 0 {
		cfg.EventBurst = 100
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 10 * time.Second
	}
	rc := rest.CopyConfig(cfg.REST)
	rc.NegotiatedSerializer = codecs.WithoutConversion()
	rc.ContentType, rc.AcceptContentTypes = protobuf, protobuf+",application/json"
	if rc.UserAgent == "" {
		rc.UserAgent = "kubeletkit/" + cfg.Node
	}
	if err := counted(rc, cfg.Observe); err != nil {
		return nil, fmt.Errorf("kubeapi: %w", err)
	}
	client, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, fmt.Errorf("kubeapi: %w", err)
	}
	c := &Client{cfg: cfg, log: cfg.Observe.Logger(), http: client}
	c.asked = &asked{RateLimiter: flowcontrol.NewTokenBucketRateLimiter(cfg.QPS, cfg.Burst)}
	events := flowcontrol.NewFakeAlwaysRateLimiter()
	if cfg.EventQPS > 0 {
		events = flowcontrol.NewTokenBucketRateLimiter(cfg.EventQPS, cfg.EventBurst)
	}
	for _, part := range []struct {
		to    *rest.Interface
		group schema.GroupVersion
		limit flowcontrol.RateLimiter
	}{
		{&c.pods, v1.SchemeGroupVersion, c.asked},
		{&c.heartbeat, v1.SchemeGroupVersion, flowcontrol.NewFakeAlwaysRateLimiter()},
		{&c.events, v1.SchemeGroupVersion, events},
		{&c.leases, coordv1.SchemeGroupVersion, flowcontrol.NewFakeAlwaysRateLimiter()},
		{&c.certificates, certv1.SchemeGroupVersion, c.asked},
		{&c.authn, authnv1.SchemeGroupVersion, c.asked},
		{&c.authz, authzv1.SchemeGroupVersion, c.asked},
		{&c.classes, nodev1.SchemeGroupVersion, c.asked},
		{&c.storage, storagev1.SchemeGroupVersion, c.asked},
	} {
		own := rest.CopyConfig(rc)
		own.GroupVersion, own.RateLimiter, own.APIPath = &part.group, part.limit, "/apis"
		if part.group.Group == "" {
			own.APIPath = "/api"
		}
		made, err := rest.RESTClientForConfigAndClient(own, client)
		if err != nil {
			return nil, fmt.Errorf("kubeapi: %w", err)
		}
		*part.to = made
	}
	c.node = newWatched[*v1.Node](c, c.pods, &v1.Node{}, "nodes", "", named(cfg.Node))
	return c, nil
}

// named selects an object by its name.
func named(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }

// Run watches this node's Node object until ctx ends.
func (c *Client) Run(ctx context.Context) error {
	c.node.run(ctx)
	return nil
}

// CloseIdle closes the connections nobody uses: what a network has silently cut is opened anew.
func (c *Client) CloseIdle() { utilnet.CloseIdleConnectionsFor(c.http.Transport) } // the http.Client does not look into wrapped ones
