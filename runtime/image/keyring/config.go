package keyring

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Provider is a program that is asked for credentials, as in a CredentialProviderConfig of the kubelet.
type Provider struct {
	Name                 string           `json:"name"`                 // of the program
	MatchImages          []string         `json:"matchImages"`          // repositories it is asked about, with globs in host labels
	DefaultCacheDuration *metav1.Duration `json:"defaultCacheDuration"` // when an answer does not say; zero: not kept
	APIVersion           string           `json:"apiVersion"`           // it is spoken to in; it must answer in the same
	Args                 []string         `json:"args,omitempty"`
	Env                  []Variable       `json:"env,omitempty"` // beside the environment of this process
	TokenAttributes      *TokenAttributes `json:"tokenAttributes,omitempty"`
}

// Variable is one environment variable.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// TokenAttributes say that a provider is given a token of the pod's service account.
type TokenAttributes struct {
	Audience     string   `json:"serviceAccountTokenAudience"`
	CacheType    string   `json:"cacheType"`             // Token: an answer is for this token alone; ServiceAccount: for all of the account
	Require      *bool    `json:"requireServiceAccount"` // pods without a service account: false: asked without a token; true: not asked
	RequiredKeys []string `json:"requiredServiceAccountAnnotationKeys,omitempty"`
	OptionalKeys []string `json:"optionalServiceAccountAnnotationKeys,omitempty"`
}

// document is a CredentialProviderConfig.
type document struct {
	metav1.TypeMeta `json:",inline"`
	Providers       []Provider `json:"providers"`
}

const (
	groupConfig   = "kubelet.config.k8s.io/"
	groupProtocol = "credentialprovider.kubelet.k8s.io/"
)

// ReadProviders reads a CredentialProviderConfig: a file, or a directory whose .json, .yaml and .yml files are read in the order
// of their names. The hash changes with any byte of them. What the kubelet would refuse at its start is an error.
func ReadProviders(path string) (providers []Provider, hash string, err error) {
	list, err := filesIn(path)
	if err != nil {
		return nil, "", fmt.Errorf("credential providers: %w", err)
	}
	sum := sha256.New()
	for _, file := range list {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, "", fmt.Errorf("credential providers: %w", err)
		}
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		sum.Write(b)
		more, err := decode(b)
		if err != nil {
			return nil, "", fmt.Errorf("credential providers: %s: %w", file, err)
		}
		providers = append(providers, more...)
	}
	if len(providers) == 0 {
		return nil, "", fmt.Errorf("credential providers: %s: providers is empty; name at least one, or leave out the flag", path)
	}
	if err := check(providers); err != nil {
		return nil, "", fmt.Errorf("credential providers: %s: %w", path, err)
	}
	return providers, fmt.Sprintf("sha256:%x", sum.Sum(nil)), nil
}

func filesIn(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		if slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(e.Name())) && !e.IsDir() {
			list = append(list, filepath.Join(path, e.Name()))
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s has no file .json, .yaml or .yml", path)
	}
	return list, nil
}

func decode(b []byte) ([]Provider, error) {
	var d document
	if err := yaml.UnmarshalStrict(b, &d); err != nil {
		return nil, err
	}
	versions := []string{groupConfig + "v1", groupConfig + "v1beta1", groupConfig + "v1alpha1"}
	if d.Kind != "CredentialProviderConfig" || !slices.Contains(versions, d.APIVersion) {
		return nil, fmt.Errorf("kind %q, apiVersion %q: want CredentialProviderConfig and one of %s", d.Kind, d.APIVersion, strings.Join(versions, ", "))
	}
	for i, p := range d.Providers {
		if p.TokenAttributes != nil && d.APIVersion != versions[0] {
			return nil, fmt.Errorf("providers[%d] (%s): tokenAttributes need a configuration of apiVersion %s, this one is of %s", i, p.Name, versions[0], d.APIVersion)
		}
	}
	return d.Providers, nil
}

// check says all that is wrong with providers.
func check(providers []Provider) error {
	var errs []error
	names := map[string]bool{}
	for i, p := range providers {
		at := fmt.Sprintf("providers[%d] (%s)", i, p.Name)
		if names[p.Name] {
			errs = append(errs, fmt.Errorf("%s: a provider of this name is there already", at))
		}
		names[p.Name] = true
		for _, problem := range p.problems() {
			errs = append(errs, fmt.Errorf("%s: %s", at, problem))
		}
	}
	return errors.Join(errs...)
}

func (p *Provider) problems() (out []string) {
	if strings.ContainsAny(p.Name, "/ ") || p.Name == "" || p.Name == "." || p.Name == ".." {
		out = append(out, "name must be the name of a file, without spaces")
	}
	versions := []string{groupProtocol + "v1", groupProtocol + "v1beta1", groupProtocol + "v1alpha1"}
	if !slices.Contains(versions, p.APIVersion) {
		out = append(out, fmt.Sprintf("apiVersion %q must be one of %s", p.APIVersion, strings.Join(versions, ", ")))
	}
	if len(p.MatchImages) == 0 {
		out = append(out, "matchImages must name at least one")
	}
	for _, m := range p.MatchImages {
		if _, err := url.Parse("https://" + m); err != nil {
			out = append(out, fmt.Sprintf("matchImages: %q is no host with a path", m))
		}
	}
	if d := p.DefaultCacheDuration; d == nil || d.Duration < 0 {
		out = append(out, "defaultCacheDuration must be set and not negative; 0s keeps nothing")
	}
	if t := p.TokenAttributes; t != nil {
		if p.APIVersion != versions[0] {
			out = append(out, "tokenAttributes need apiVersion "+versions[0])
		}
		out = append(out, t.problems()...)
	}
	return out
}

func (t *TokenAttributes) problems() (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf("tokenAttributes."+format, args...)) }
	if t.Audience == "" {
		say("serviceAccountTokenAudience must be set")
	}
	if t.Require == nil {
		say("requireServiceAccount must be set")
	} else if !*t.Require && len(t.RequiredKeys) > 0 {
		say("requiredServiceAccountAnnotationKeys need requireServiceAccount: true")
	}
	if t.CacheType != cacheToken && t.CacheType != cacheAccount {
		say("cacheType %q must be %s or %s", t.CacheType, cacheAccount, cacheToken)
	}
	seen := map[string]bool{}
	for _, key := range slices.Concat(t.RequiredKeys, t.OptionalKeys) {
		if seen[key] {
			say("annotation %q is there twice", key)
		}
		seen[key] = true
		for _, wrong := range validation.IsQualifiedName(strings.ToLower(key)) {
			say("annotation %q: %s", key, wrong)
		}
	}
	return out
}
