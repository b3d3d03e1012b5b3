// Package checkpoint writes small files of state that are whole or absent, whatever happens to the machine meanwhile, and
// sees it when one was damaged later. The format is the kubelet's: an agent that takes a node over from one reads what that
// wrote, and the other way round.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// ErrDamaged is about a file that is there and cannot be believed. It has been set aside: its name now ends in Aside.
var ErrDamaged = errors.New("damaged")

// Aside is the end of the name of a damaged file.
const Aside = ".damaged"

// file is what lies on the disk.
type file struct {
	Data     string `json:"data"` // JSON
	Checksum uint64 `json:"checksum"`
}

// Write puts data, which is JSON, in the place of what the file had. Before it returns, all is on the disk. Its directory is
// made if need be.
func Write(path string, data []byte) error {
	whole, err := prepare(path, data)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := renameio.WriteFile(path, whole, mode, renameio.WithTempDir(dir), renameio.WithStaticPermissions(mode)); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil // the file is there; only a loss of power could bring the old one back
	}
	defer d.Close()
	_ = d.Sync() // some file systems have no way to
	return nil
}

// WriteUntilReboot is as Write, but does not wait for the disk: after a loss of power the file may be an older one, or damaged.
// It is for what means nothing then.
func WriteUntilReboot(path string, data []byte) error {
	whole, err := prepare(path, data)
	if err != nil {
		return err
	}
	next := path + ".new" // always the same name: one that a killed process left is taken over
	if err = os.WriteFile(next, whole, mode); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", errors.Join(err, remove(next)))
	}
	return nil
}

// remove removes a file that may be there.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

const mode = 0o600

// prepare makes the directory of a file and what is to be in the file.
func prepare(path string, data []byte) ([]byte, error) {
	whole, err := json.Marshal(file{Data: string(data), Checksum: sum(string(data))})
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return whole, nil
}

// Read fills v with what Write was given last. fs.ErrNotExist: there is no such file. ErrDamaged: there is one, but it is
// not what was written.
func Read(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	var f file
	err = json.Unmarshal(b, &f)
	if err == nil && f.Checksum != sum(f.Data) {
		err = fmt.Errorf("the checksum is %d and must be %d", f.Checksum, sum(f.Data))
	}
	if err == nil {
		err = json.Unmarshal([]byte(f.Data), v)
	}
	if err == nil {
		return nil
	}
	damaged := fmt.Errorf("checkpoint %s is %w (%w) and is set aside as %s", path, ErrDamaged, err, filepath.Base(path)+Aside)
	if err := os.Rename(path, path+Aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(damaged, err)
	}
	return damaged
}

// sum is the kubelet's: of the text as its dump of values writes a string.
func sum(data string) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte("(string)" + data))
	return uint64(h.Sum32())
}
