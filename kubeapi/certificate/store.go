package certificate

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// store is a directory with the pairs of one prefix, laid out as the kubelet does.
type store struct {
	dir, prefix       string
	certFile, keyFile string // looked at when there is no current pair; may be empty
}

func (s *store) path(what string) string { return filepath.Join(s.dir, s.prefix+"-"+what+".pem") }
func (s *store) current() string         { return s.path("current") }
func (s *store) keyPath() string         { return filepath.Join(s.dir, s.prefix+".key.tmp") }

// load finds the pair in use and says which file it is in. Without one the error is fs.ErrNotExist.
func (s *store) load() (*tls.Certificate, string, error) {
	if err := s.finish(); err != nil {
		return nil, "", err
	}
	for _, p := range [][2]string{
		{s.current(), s.current()},
		{s.certFile, s.keyFile},
		{filepath.Join(s.dir, s.prefix+".crt"), filepath.Join(s.dir, s.prefix+".key")},
	} {
		if !exists(p[0]) || !exists(p[1]) {
			continue
		}
		pair, err := tls.LoadX509KeyPair(p[0], p[1])
		if err != nil {
			return nil, p[0], fmt.Errorf("certificate and key in %s: %w", p[0], err)
		}
		return &pair, p[0], nil
	}
	return nil, s.current(), fmt.Errorf("%s: %w", s.current(), fs.ErrNotExist)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return path != "" && !errors.Is(err, fs.ErrNotExist)
}

// finish ends a change of the link that was cut in the middle.
func (s *store) finish() error {
	if _, err := os.Lstat(s.current()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	next := s.path("updated")
	switch info, err := os.Lstat(next); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink == 0:
		return fmt.Errorf("%s is no link; it should be one to a file with certificate and key: move it away", next)
	}
	return os.Rename(next, s.current())
}

// save makes a pair the current one. certs is what the signer gave, PEM, leaf first.
func (s *store) save(certs, key []byte, now time.Time) (*tls.Certificate, error) {
	text, err := onlyCertificates(certs)
	if err != nil {
		return nil, err
	}
	text = append(text, key...)
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	path, err := s.write(text, now)
	if err != nil {
		return nil, err
	}
	return &pair, s.point(path)
}

// onlyCertificates drops comments and other blocks.
func onlyCertificates(text []byte) (out []byte, err error) {
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
			break
		}
		if block.Type == "CERTIFICATE" && len(block.Headers) == 0 {
			out = append(out, pem.EncodeToMemory(block)...)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no PEM block CERTIFICATE in it")
	}
	return out, nil
}

// write puts text into a new file that has its date in its name. No file is written over: when one of that second is
// there already it takes the next.
func (s *store) write(text []byte, now time.Time) (string, error) {
	temp, err := os.CreateTemp(s.dir, "."+s.prefix+"-*") // mode 0600
	if err != nil {
		return "", err
	}
	defer os.Remove(temp.Name()) // gone already when all went well
	_, err = temp.Write(text)
	if err := errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return "", err
	}
	path := s.path(now.Format(stamp))
	for ; taken(path); path = s.path(now.Format(stamp)) {
		now = now.Add(time.Second)
	}
	return path, os.Rename(temp.Name(), path)
}

const stamp = "2006-01-02-15-04-05" // in local time, as the kubelet writes it

func taken(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// point makes the link of the current pair show to path. A plain file in its place is kept under the name it would have.
func (s *store) point(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if info, err := os.Lstat(s.current()); err == nil && info.Mode().IsRegular() {
		old, err := os.ReadFile(s.current())
		if err != nil {
			return err
		}
		if _, err := s.write(old, info.ModTime()); err != nil {
			return err
		}
	}
	next := s.path("updated")
	if info, err := os.Lstat(next); err == nil {
		if info.Mode()&fs.ModeSymlink == 0 {
			return fmt.Errorf("%s is no link: move it away", next)
		}
		if err := os.Remove(next); err != nil {
			return err
		}
	}
	if err := os.Symlink(path, next); err != nil {
		return err
	}
	if err := os.Rename(next, s.current()); err != nil {
		return err
	}
	return syncDir(s.dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// pendingKey is the key that waits for its certificate, or a new one that now does. One that has its certificate already
// (a stop came in between) or does not read is replaced.
func (s *store) pendingKey(have *x509.Certificate) (crypto.Signer, []byte, error) {
	if text, err := os.ReadFile(s.keyPath()); err == nil {
		key, err := parseKey(text)
		if err == nil && (have == nil || !samePublic(key.Public(), have.PublicKey)) {
			return key, text, nil
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, nil, err
	}
	return key, text, replaceFile(s.keyPath(), text, 0o600)
}

// dropKey forgets the key that waits.
func (s *store) dropKey() error {
	if err := os.Remove(s.keyPath()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func samePublic(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}

// parseKey reads a private key that can sign.
func parseKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(bytes.TrimSpace(text))
	if block == nil {
		return nil, errors.New("no PEM block with a key in it")
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a %T cannot sign", key)
	}
	return signer, nil
}

// replaceFile puts a file there whole, in one moment.
func replaceFile(path string, text []byte, mode fs.FileMode) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(text)
	if err := errors.Join(err, temp.Chmod(mode), temp.Sync(), temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
