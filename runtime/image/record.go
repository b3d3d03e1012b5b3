package image

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const group = "kubelet.config.k8s.io/"

// intent is a pull that was begun: ImagePullIntent of the kubelet.
type intent struct {
	metav1.TypeMeta `json:",inline"`
	Image           string `json:"image"` // as a pod names it
}

// record is an image that was pulled: ImagePulledRecord of the kubelet.
type record struct {
	metav1.TypeMeta `json:",inline"`
	Updated         metav1.Time           `json:"lastUpdatedTime"`
	Ref             string                `json:"imageRef"` // ID of the image
	With            map[string]pulledWith `json:"credentialMapping,omitempty"`
}

// pulledWith is what opened a repository, by its name as pods write it.
type pulledWith struct {
	Secrets   []secret  `json:"kubernetesSecrets,omitempty"`
	Accounts  []account `json:"kubernetesServiceAccounts,omitempty"`
	Everybody bool      `json:"nodePodsAccessible,omitempty"`
}

type secret struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Hash      string `json:"credentialHash"`
}

type account struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// readIntent and readRecord understand files of every kubelet that has written some.
func readIntent(b []byte) (*intent, error) {
	i := &intent{}
	return i, readAs(b, i, &i.TypeMeta, "ImagePullIntent")
}

func readRecord(b []byte) (*record, error) {
	r := &record{}
	return r, readAs(b, r, &r.TypeMeta, "ImagePulledRecord")
}

func readAs(b []byte, into any, is *metav1.TypeMeta, kind string) error {
	if err := json.Unmarshal(b, into); err != nil {
		return err
	}
	if is.Kind != kind || is.APIVersion != group+"v1beta1" && is.APIVersion != group+"v1alpha1" {
		return fmt.Errorf("kind %q, apiVersion %q: want %s, %sv1beta1 or v1alpha1", is.Kind, is.APIVersion, kind, group)
	}
	return nil
}

// folder holds files that are named by a hash of what they are about.
type folder string

const (
	filePrefix = "sha256-"
	tempSuffix = ".tmp"
)

func (f folder) path(about string) string {
	return filepath.Join(string(f), fmt.Sprintf("%s%x", filePrefix, sha256.Sum256([]byte(about))))
}

// read is nil for a file that is not there.
func (f folder) read(about string) ([]byte, error) {
	b, err := os.ReadFile(f.path(about))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// write makes a file appear with all its content.
func (f folder) write(about string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return err
	}
	path := f.path(about)
	if err = os.WriteFile(path+tempSuffix, append(b, '\n'), 0o600); err == nil {
		err = os.Rename(path+tempSuffix, path)
	}
	if err != nil {
		_ = os.Remove(path + tempSuffix)
	}
	return err
}

func (f folder) remove(about string) error {
	if err := os.Remove(f.path(about)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// each reads all files. Those that cannot be read are told in the error, and stay.
func (f folder) each(use func(b []byte) error) error {
	entries, err := os.ReadDir(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if e.IsDir() || !strings.HasPrefix(e.Name(), filePrefix) || strings.HasSuffix(e.Name(), tempSuffix) {
			continue
		}
		path := filepath.Join(string(f), e.Name())
		b, err := os.ReadFile(path)
		if err == nil {
			err = use(b)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}
