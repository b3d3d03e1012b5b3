// Command upstream asks kubelet v1.37.2 what it makes of the inputs in testdata, and writes its answers beside them:
//
//	cases/*/want.json   the configuration it would run with, or null where it refuses
//	values.txt          the first column: whether it takes the fields of the line
//	flags.txt           the names of its flags
//	../gates.txt        its feature gates with their defaults
//
// Run it in this folder after a change of the versions in go.mod; it needs some minutes and a copy of go.mod that it may write to:
//
//	cp go.mod /tmp/upstream.mod && go run -mod=mod -modfile=/tmp/upstream.mod .
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/resource"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	internal "k8s.io/kubernetes/pkg/kubelet/apis/config"
	upstream "k8s.io/kubernetes/pkg/kubelet/apis/config/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/configfiles"
	utilfs "k8s.io/kubernetes/pkg/util/filesystem"
)

const testdata = ".."

func main() {
	must(logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate))
	cases()
	values()
	flags()
	gates()
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// cases writes what the kubelet makes of each folder. Paths below the folder are written as /case.
func cases() {
	dirs, err := filepath.Glob(filepath.Join(testdata, "cases", "*"))
	must(err)
	for _, dir := range dirs {
		dir, err := filepath.Abs(dir)
		must(err)
		c, err := load(dir)
		var out []byte
		if err != nil {
			log.Printf("%s: %v", filepath.Base(dir), err)
			out = []byte("null")
		} else {
			out, err = json.MarshalIndent(c, "", "  ")
			must(err)
		}
		out = bytes.ReplaceAll(out, []byte(filepath.Dir(dir)), []byte("/cases"))
		must(os.WriteFile(filepath.Join(dir, "want.json"), append(out, '\n'), 0o644))
	}
}

func load(dir string) (*v1beta1.KubeletConfiguration, error) {
	c, err := loadFile(filepath.Join(dir, "config.yaml"))
	if err != nil {
		return nil, err
	}
	if dropIns := filepath.Join(dir, "conf.d"); exists(dropIns) {
		if c, err = merge(c, dropIns); err != nil {
			return nil, err
		}
	}
	if file := filepath.Join(dir, "flags"); exists(file) {
		gates := c.FeatureGates
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
		options.AddKubeletConfigFlags(fs, c)
		data, err := os.ReadFile(file)
		must(err)
		must(fs.Parse(strings.Split(strings.TrimSpace(string(data)), "\n")))
		for name, on := range gates {
			if _, ok := c.FeatureGates[name]; !ok {
				c.FeatureGates[name] = on
			}
		}
	}
	return external(c), nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func loadFile(path string) (*internal.KubeletConfiguration, error) {
	loader, err := configfiles.NewFsLoader(&utilfs.DefaultFs{}, path)
	must(err)
	c, err := loader.Load(context.Background())
	if err != nil {
		return nil, err
	}
	if c.EvictionHard == nil {
		c.EvictionHard = maps.Clone(eviction.DefaultEvictionHard)
	} else if c.MergeDefaultEvictionSettings {
		all := maps.Clone(eviction.DefaultEvictionHard)
		maps.Copy(all, c.EvictionHard)
		c.EvictionHard = all
	}
	return c, nil
}

func merge(c *internal.KubeletConfiguration, dir string) (*internal.KubeletConfiguration, error) {
	base, err := json.Marshal(external(c))
	must(err)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".conf" {
			return err
		}
		loader, err := configfiles.NewFsLoader(&utilfs.DefaultFs{}, path)
		must(err)
		over, gvk, err := loader.LoadIntoJSON()
		if err != nil {
			return err
		}
		if gvk == nil || *gvk != v1beta1.SchemeGroupVersion.WithKind("KubeletConfiguration") {
			return fmt.Errorf("%s: kind %v", path, gvk)
		}
		base, err = jsonpatch.MergePatch(base, over)
		return err
	})
	if err != nil {
		return nil, err
	}
	merged := &v1beta1.KubeletConfiguration{}
	if err := json.Unmarshal(base, merged); err != nil {
		return nil, err
	}
	upstream.SetDefaults_KubeletConfiguration(merged)
	out := &internal.KubeletConfiguration{}
	return out, upstream.Convert_v1beta1_KubeletConfiguration_To_config_KubeletConfiguration(merged, out, nil)
}

func external(c *internal.KubeletConfiguration) *v1beta1.KubeletConfiguration {
	out := &v1beta1.KubeletConfiguration{}
	must(upstream.Convert_config_KubeletConfiguration_To_v1beta1_KubeletConfiguration(c, out, nil))
	return out
}

// values writes the first column.
func values() {
	path := filepath.Join(testdata, "values.txt")
	data, err := os.ReadFile(path)
	must(err)
	dir, err := os.MkdirTemp("", "")
	must(err)
	defer os.RemoveAll(dir)
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.SplitN(line, " ", 3)
		fields := parts[2]
		if strings.HasPrefix(fields, "{") {
			fields = "---\n{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, " + fields[1:]
		} else {
			fields = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + fields
		}
		file := filepath.Join(dir, "config.yaml")
		must(os.WriteFile(file, []byte(fields), 0o600))
		parts[0] = "ok"
		if err := judge(file); err != nil {
			log.Print(err)
			parts[0] = "no"
		}
		lines[i] = strings.Join(parts, " ")
	}
	must(os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
}

// judge puts together what the kubelet asks of a configuration at its start, whatever the host.
func judge(file string) error {
	c, err := loadFile(file)
	if err != nil {
		return err
	}
	c.FailCgroupV1 = false
	if err := validation.ValidateKubeletConfiguration(c, utilfeature.DefaultFeatureGate); err != nil {
		return err
	}
	if _, err := eviction.ParseThresholdConfig(c.EnforceNodeAllocatable, c.EvictionHard, c.EvictionSoft, c.EvictionSoftGracePeriod, c.EvictionMinimumReclaim); err != nil {
		return err
	}
	for _, reserved := range []map[string]string{c.SystemReserved, c.KubeReserved} {
		for name, value := range reserved {
			q, err := resource.ParseQuantity(value)
			if err != nil {
				return err
			}
			if q.Sign() < 0 || !slices.Contains([]string{"cpu", "memory", "ephemeral-storage", "pid"}, name) {
				return fmt.Errorf("reserved %s=%s", name, value)
			}
		}
	}
	if _, err := resource.ParseQuantity(c.ContainerLogMaxSize); err != nil {
		return err
	}
	if _, err := cliflag.TLSCipherSuites(c.TLSCipherSuites); err != nil {
		return err
	}
	if _, err := cliflag.TLSVersion(c.TLSMinVersion); err != nil {
		return err
	}
	if _, err := cliflag.TLSCurvePreferences(c.TLSCurvePreferences); err != nil {
		return err
	}
	switch c.Authorization.Mode {
	case internal.KubeletAuthorizationModeAlwaysAllow, internal.KubeletAuthorizationModeWebhook:
		return nil
	}
	return fmt.Errorf("authorization mode %q", c.Authorization.Mode)
}

func flags() {
	s, err := options.NewKubeletServer()
	must(err)
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	s.AddFlags(fs)
	options.AddGlobalFlags(fs)
	var out strings.Builder
	fs.VisitAll(func(f *pflag.Flag) {
		kind := ""
		if f.NoOptDefVal != "" {
			kind = " " + f.NoOptDefVal
		}
		fmt.Fprintln(&out, f.Name+kind)
	})
	must(os.WriteFile(filepath.Join(testdata, "flags.txt"), []byte(out.String()), 0o644))
}

func gates() {
	var lines []string
	for name := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		sign := "-"
		if utilfeature.DefaultFeatureGate.Enabled(name) {
			sign = "+"
		}
		lines = append(lines, sign+string(name))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[1:], b[1:]) })
	must(os.WriteFile(filepath.Join(testdata, "..", "gates.txt"), []byte(strings.Join(lines, "\n")+"\n"), 0o644))
}
