package image

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Policy says for which images on this host a pod must show that it may pull them. Others are for every pod.
type Policy string

// The policies of the kubelet's imagePullCredentialsVerificationPolicy.
const (
	NeverVerify                  Policy = "NeverVerify"
	NeverVerifyPreloadedImages   Policy = "NeverVerifyPreloadedImages" // those that were pulled for a pod; also empty
	NeverVerifyAllowlistedImages Policy = "NeverVerifyAllowlistedImages"
	AlwaysVerify                 Policy = "AlwaysVerify"
)

// verifier decides which images are for those who may pull them.
type verifier struct {
	policy Policy
	exempt []string
}

func newVerifier(p Policy, exempt []string) (verifier, error) {
	v := verifier{cmp.Or(p, NeverVerifyPreloadedImages), exempt}
	known := []Policy{NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages, AlwaysVerify}
	if !slices.Contains(known, v.policy) {
		return v, fmt.Errorf("verification policy %q is none of %v", p, known)
	}
	for _, e := range exempt {
		if err := checkExempt(e); err != nil {
			return v, fmt.Errorf("verification exempts %q: %w", e, err)
		}
	}
	return v, nil
}

func checkExempt(pattern string) error {
	below, wild := strings.CutSuffix(pattern, "/*")
	switch {
	case strings.TrimSpace(pattern) != pattern:
		return fmt.Errorf("remove the space around it")
	case strings.Contains(below, "*"):
		return fmt.Errorf("a star is only for the end, after a slash")
	case below == "":
		return fmt.Errorf("name a registry at least")
	case wild:
		return nil
	}
	name, err := bare(pattern)
	if err == nil && name != pattern {
		err = fmt.Errorf("leave out tag and digest")
	}
	return err
}

// verifies says whether pods have to show that they may pull the image. pulled: it was pulled for a pod, as far as is known.
func (v verifier) verifies(image string, pulled bool) bool {
	switch v.policy {
	case NeverVerify:
		return false
	case NeverVerifyPreloadedImages:
		return pulled
	case NeverVerifyAllowlistedImages:
		return !v.exempts(image)
	default:
		return true
	}
}

func (v verifier) exempts(image string) bool {
	if name, err := bare(image); err == nil {
		image = name
	}
	return slices.ContainsFunc(v.exempt, func(e string) bool {
		if below, wild := strings.CutSuffix(e, "*"); wild {
			return strings.HasPrefix(image, below)
		}
		return image == e
	})
}

// mostSecrets is how many secrets a record grows to by pods that showed one which opens the same.
const mostSecrets = 100

// opens says whether one of the credentials opens what was pulled with those of the record. learned is a secret that is
// worth adding to the record: it is known by its content, or by its name with new content.
func (p pulledWith) opens(credentials []runtime.Credential) (ok bool, learned *runtime.Credential) {
	if p.Everybody {
		return true, nil
	}
	for i, c := range credentials {
		if c.Secret == nil {
			continue
		}
		for _, s := range p.Secrets {
			sameContent := s.Hash != "" && s.Hash == c.Hash
			sameName := s.UID == string(c.Secret.UID) && s.Namespace == c.Secret.Namespace && s.Name == c.Secret.Name
			roomy := len(p.Secrets) < mostSecrets
			switch {
			case sameContent && sameName, sameContent && !roomy:
				return true, nil
			case sameContent, sameName && roomy:
				return true, &credentials[i]
			}
		}
	}
	i := slices.IndexFunc(credentials, func(c runtime.Credential) bool { return c.Account != nil })
	return i >= 0 && slices.Contains(p.Accounts, accountOf(credentials[i].Account)), nil
}

// with is a record to which a credential was added, nil for one that everybody has. It only ever allows more.
func (p pulledWith) with(c *runtime.Credential) (pulledWith, bool) {
	switch {
	case p.Everybody:
		return p, false
	case c == nil || c.Secret == nil && c.Account == nil:
		return pulledWith{Everybody: true}, true
	case c.Secret != nil:
		s := secretOf(c)
		if slices.Contains(p.Secrets, s) {
			return p, false
		}
		p.Secrets = slices.DeleteFunc(slices.Clone(p.Secrets), func(old secret) bool {
			return old.UID == s.UID && old.Namespace == s.Namespace && old.Name == s.Name
		})
		p.Secrets = append(p.Secrets, s)
		slices.SortFunc(p.Secrets, func(a, b secret) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
		})
		return p, true
	default:
		a := accountOf(c.Account)
		if slices.Contains(p.Accounts, a) {
			return p, false
		}
		p.Accounts = append(slices.Clone(p.Accounts), a)
		slices.SortFunc(p.Accounts, func(a, b account) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
		})
		return p, true
	}
}

func secretOf(c *runtime.Credential) secret {
	return secret{UID: string(c.Secret.UID), Namespace: c.Secret.Namespace, Name: c.Secret.Name, Hash: c.Hash}
}

func accountOf(r *runtime.ObjectRef) account {
	return account{UID: string(r.UID), Namespace: r.Namespace, Name: r.Name}
}
