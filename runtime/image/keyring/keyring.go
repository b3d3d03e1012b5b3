package keyring

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Config describes a Keyring. Every field works at zero: then no registry is opened.
type Config struct {
	// Secret is the pull secret of that name, for pods that name some; nil: pods cannot name any.
	Secret func(ctx context.Context, namespace, name string) (*v1.Secret, error)

	Files []string // docker configurations of this node; the first that can be read counts, for five minutes. See NodeFiles

	Providers []Provider // programs to be asked, in this order; ReadProviders reads them
	Hash      string     // of the files they were read from, for a metric
	Dir       string     // where the programs lie

	// Account and Token are asked for providers that want a service account's token: Token for one of the pod's service
	// account, bound to the pod, of so many seconds. nil: these providers fail.
	Account func(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	Token   func(ctx context.Context, pod *v1.Pod, audience string, seconds int64) (token string, expires time.Time, err error)

	Observe observe.To
}

// Keyring finds credentials. All methods are safe for concurrent use.
type Keyring struct {
	cfg     Config
	files   files
	plugins []*plugin
}

// New makes a Keyring. A provider whose program is not in Dir is an error.
func New(cfg Config) (*Keyring, error) {
	if err := check(cfg.Providers); err != nil {
		return nil, fmt.Errorf("keyring: %w", err)
	}
	m, err := newMetrics(cfg.Observe)
	if err != nil {
		return nil, err
	}
	k := &Keyring{cfg: cfg, files: files{paths: cfg.Files}}
	for _, p := range cfg.Providers {
		program := filepath.Join(cfg.Dir, p.Name)
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("keyring: credential provider %s: %w; put the program into %s or remove the provider", p.Name, err, cfg.Dir)
		}
		k.plugins = append(k.plugins, &plugin{
			Provider: p, account: cfg.Account, token: cfg.Token, metrics: m,
			ask: (&executable{path: program, Provider: p, environ: os.Environ}).ask, cache: map[string]kept{}, flights: map[string]*flight{},
		})
	}
	if cfg.Hash != "" {
		m.config.Record(1, cfg.Hash)
	}
	return k, nil
}

// Lookup is the credentials to try for an image of a pod, in order; none: pull without. The repository is the name of the
// image with its registry, without tag and digest. missing are pull secrets that cannot be read, by name. An error is about a
// secret that is not what it says it is.
func (k *Keyring) Lookup(ctx context.Context, pod *v1.Pod, repository string) (found []runtime.Credential, missing []string, err error) {
	found, missing, err = k.ofSecrets(ctx, pod, repository)
	if err != nil {
		return nil, nil, err
	}
	node, skipped := k.files.read(time.Now())
	if skipped != nil {
		k.cfg.Observe.Logger().Warn("the node's docker configuration is not used", "err", skipped)
	}
	own := ring{}
	own.add(node, runtime.Credential{})
	found = append(found, own.find(repository)...)
	given := ring{}
	for i, a := range k.askAll(ctx, pod, repository) {
		if a.err != nil && ctx.Err() == nil {
			k.cfg.Observe.Logger().Warn("a credential provider gave nothing", "provider", k.plugins[i].Name, "image", repository,
				"pod", pod.Namespace+"/"+pod.Name, "err", a.err)
		}
		given.add(a.entries, runtime.Credential{Account: a.account})
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	return append(found, given.find(repository)...), missing, nil
}

// ofSecrets is what the pull secrets of a pod say.
func (k *Keyring) ofSecrets(ctx context.Context, pod *v1.Pod, repository string) (found []runtime.Credential, missing []string, err error) {
	all := ring{}
	for _, ref := range pod.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue // the API lets such through
		}
		s, err := k.secret(ctx, pod.Namespace, ref.Name)
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		if err != nil {
			k.cfg.Observe.Logger().Debug("an image pull secret is missing", "pod", pod.Namespace+"/"+pod.Name, "secret", ref.Name, "err", err)
			missing = append(missing, ref.Name)
			continue
		}
		entries, err := ofSecret(s)
		if err != nil {
			return nil, nil, err
		}
		all.add(entries, runtime.Credential{Secret: &runtime.ObjectRef{Namespace: s.Namespace, Name: s.Name, UID: s.UID}})
	}
	return all.find(repository), missing, nil
}

func (k *Keyring) secret(ctx context.Context, namespace, name string) (*v1.Secret, error) {
	if k.cfg.Secret == nil {
		return nil, errors.New("this agent reads no secrets")
	}
	s, err := k.cfg.Secret(ctx, namespace, name)
	if s == nil && err == nil {
		err = runtime.ErrNotFound
	}
	return s, err
}

// askAll asks the providers side by side, so that one which hangs costs no more than a minute in all.
func (k *Keyring) askAll(ctx context.Context, pod *v1.Pod, repository string) []answer {
	answers := make([]answer, len(k.plugins))
	var all sync.WaitGroup
	for i, p := range k.plugins {
		if p.wants(repository) {
			all.Go(func() { answers[i] = p.provide(ctx, pod, repository) })
		}
	}
	all.Wait()
	return answers
}

type metrics struct{ errors, duration, config observe.Metric }

func newMetrics(o observe.To) (*metrics, error) {
	in := o.Instruments()
	m := &metrics{
		errors:   in.Counter("kubelet_credential_provider_plugin_errors_total", "Credential providers that failed.", "plugin_name"),
		duration: in.Histogram("kubelet_credential_provider_plugin_duration", "How long credential providers took, in seconds.", []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "plugin_name"),
		config:   in.Gauge("kubelet_credential_provider_config_info", "Fingerprint of the configuration of credential providers.", "hash"),
	}
	return m, in.Err
}
