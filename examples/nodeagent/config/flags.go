package config

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/kubeletkit/kubeletkit/status/nodestatus"
)

// Overrides is the command line: flags that have no field in a file, and those that go over one.
type Overrides struct {
	Kubeconfig          string            // how to reach the API server; empty: there is none
	BootstrapKubeconfig string            // how to ask for the first client certificate; empty: not
	ConfigFile          string            // a KubeletConfiguration; empty: defaults
	ConfigDir           string            // its drop-ins; empty: none
	StrictConfig        bool              // unknown fields are fatal
	RootDir             string            // folder of the agent's files
	CertDir             string            // folder of certificates; after Parse never empty
	NodeIP              string            // address of the node, or two; empty: found out
	Hostname            string            // name of the node; empty: the machine's
	NodeLabels          map[string]string // labels of a new Node object
	ProviderConfig      string            // of programs that know credentials of registries; empty: there are none
	ProviderDir         string            // where these programs lie
	CloudProvider       string            // external: others fill in addresses; empty: nobody

	fs      *flag.FlagSet
	given   map[string][]string // values of flags with a field, as often as given
	ignored []string            // flags without effect that were given
	labels  []string
}

// Bind declares the flags of the kubelet, with its names, in fs, which has none of these names yet. Read them with
// Parse: it also knows underscores for dashes, flags after arguments, and unknown flags' neighbours.
func Bind(fs *flag.FlagSet) *Overrides {
	o := &Overrides{fs: fs, given: map[string][]string{}}
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "`file` that says how to reach the API server; empty: there is none")
	fs.StringVar(&o.BootstrapKubeconfig, "bootstrap-kubeconfig", "", "`file` that says how to ask for the first client certificate, when --kubeconfig is not there yet")
	fs.StringVar(&o.ConfigFile, "config", "", "`file` with a KubeletConfiguration, in YAML or JSON; flags go over it")
	fs.StringVar(&o.ConfigDir, "config-dir", "", "`folder` of drop-ins, *.conf, laid over --config by name")
	fs.BoolVar(&o.StrictConfig, "strict-config", false, "unknown fields of configuration files are fatal")
	fs.StringVar(&o.RootDir, "root-dir", "/var/lib/nodeagent", "`folder` for the agent's files")
	fs.StringVar(&o.CertDir, "cert-dir", "", "`folder` for certificates; empty: pki below --root-dir")
	fs.StringVar(&o.NodeIP, "node-ip", "", "`address` of this node, or two of both families with a comma between; empty: that of the default route")
	fs.StringVar(&o.Hostname, "hostname-override", "", "`name` of this node; empty: the hostname")
	fs.StringVar(&o.ProviderConfig, "image-credential-provider-config", "", "`file` or folder that says which programs know credentials of registries")
	fs.StringVar(&o.ProviderDir, "image-credential-provider-bin-dir", "", "`folder` of these programs")
	fs.StringVar(&o.CloudProvider, "cloud-provider", "", "external: a controller fills in addresses of the node; empty: the agent does")
	fs.Func("node-labels", "`labels` of a new Node object, key=value with commas between", func(v string) error {
		o.labels = append(o.labels, v)
		return nil
	})
	for _, f := range overFields() {
		fs.Var(&over{flagField: f, o: o}, f.name, f.usage())
	}
	for name, why := range withoutEffect() {
		fs.Var(&deaf{name: name, o: o}, name, "has no effect: "+why)
	}
	return o
}

// Parse reads a command line and gives back what is no flag.
func (o *Overrides) Parse(args []string) (rest []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			return append(rest, args...), o.complete()
		}
		if len(arg) < 2 || arg[0] != '-' {
			rest = append(rest, arg)
			continue
		}
		name, value, hasValue := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
		if rest, ok := strings.CutPrefix(arg, "-v"); ok && rest != "" && strings.Trim(rest, "0123456789") == "" {
			name, value, hasValue = "v", rest, true // -v4, as logs of Kubernetes have it
		}
		f, err := o.lookup(name)
		if err != nil {
			return nil, err
		}
		if !hasValue {
			value = "true"
			if b, ok := f.Value.(interface{ IsBoolFlag() bool }); !ok || !b.IsBoolFlag() {
				if len(args) == 0 {
					return nil, fmt.Errorf("--%s needs a value", f.Name)
				}
				value, args = args[0], args[1:]
			}
		}
		if err := o.fs.Set(f.Name, value); err != nil {
			return nil, fmt.Errorf("--%s=%s: %w", f.Name, value, err)
		}
	}
	return rest, o.complete()
}

func (o *Overrides) lookup(name string) (*flag.Flag, error) {
	name = strings.ReplaceAll(name, "_", "-")
	if f := o.fs.Lookup(name); f != nil {
		return f, nil
	}
	if name == "h" || name == "help" {
		if o.fs.Usage != nil {
			o.fs.Usage()
		} else {
			o.fs.PrintDefaults()
		}
		return nil, flag.ErrHelp
	}
	names := func(yield func(string) bool) {
		more := true
		o.fs.VisitAll(func(f *flag.Flag) { more = more && yield(f.Name) })
	}
	if near := nearest(name, names); near != "" {
		return nil, fmt.Errorf("--%s is no flag of this agent; is --%s meant?", name, near)
	}
	return nil, fmt.Errorf("--%s is no flag of this agent; --help lists them", name)
}

// complete checks flags against each other.
func (o *Overrides) complete() error {
	o.CertDir = cmp.Or(o.CertDir, filepath.Join(o.RootDir, "pki"))
	if o.CloudProvider != "" && o.CloudProvider != "external" {
		return fmt.Errorf("--cloud-provider=%s: it must be external or left out", o.CloudProvider)
	}
	if len(o.labels) > 0 {
		labels, err := pairs(o.labels, "=")
		if err != nil {
			return fmt.Errorf("--node-labels: %w", err)
		}
		o.NodeLabels = labels
	}
	if err := nodestatus.CheckLabels(o.NodeLabels); err != nil {
		return fmt.Errorf("--node-labels: %w", err)
	}
	return nil
}

// Given tells whether a flag is on the command line.
func (o *Overrides) Given(name string) (yes bool) {
	o.fs.Visit(func(f *flag.Flag) { yes = yes || f.Name == name })
	return yes
}

// Apply puts the flags that were given over c. Without an API server nobody can be asked about tokens.
func (o *Overrides) Apply(c *v1beta1.KubeletConfiguration) error {
	var errs []error
	for _, f := range overFields() {
		if values := o.given[f.name]; len(values) > 0 {
			if err := f.set(c, values); err != nil {
				errs = append(errs, fmt.Errorf("--%s: %w", f.name, err))
			}
		}
	}
	sockets(c)
	if c.Port == 0 { // only a flag can say so
		c.Port, c.EnableServer = 10250, new(false)
	}
	if o.Kubeconfig == "" && o.BootstrapKubeconfig == "" {
		c.Authentication.Webhook.Enabled = new(false)
	}
	return errors.Join(errs...)
}

// Warnings are the flags that were given and have no effect.
func (o *Overrides) Warnings() (out []Warning) {
	why := withoutEffect()
	for _, name := range slices.Compact(slices.Sorted(slices.Values(o.ignored))) {
		out = append(out, Warning{Field: "--" + name, Message: "has no effect: " + why[name]})
	}
	return out
}

// Load reads the files that the command line names, puts its flags over them and validates the whole.
func (o *Overrides) Load() (*v1beta1.KubeletConfiguration, []Warning, error) {
	c, warnings, err := Load(Options{File: o.ConfigFile, Dir: o.ConfigDir, Strict: o.StrictConfig})
	warnings = append(o.Warnings(), warnings...)
	if err != nil {
		return nil, warnings, err
	}
	if err := o.Apply(c); err != nil {
		return nil, warnings, err
	}
	if err := Validate(c); err != nil {
		return nil, warnings, fmt.Errorf("the configuration cannot work:\n%w", err)
	}
	reserveCPUs(c)
	return c, warnings, nil
}
