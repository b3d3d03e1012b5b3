package offline

import (
	"bytes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

const (
	magic         = "kubeletkit-offline 1 "
	plainBody     = "plain"
	sealedBody    = "sealed"
	damagedSuffix = ".damaged"
	maxBytes      = 16 << 20 // of a file; an object of an API server has one or two million bytes
)

var (
	errDamaged  = errors.New("is damaged")
	errOtherKey = errors.New("was sealed with another key; start with that key, or wait for the API server")
	errNoKey    = errors.New("is sealed, and no key is given; start with the key, or wait for the API server")
)

// encode makes the bytes of a file: a line with what it is and its checksum, then the body. The name counts as a part of it,
// so that one file cannot stand for another. With a cipher the body is sealed.
func encode(name string, body []byte, seal cipher.AEAD) []byte {
	how := plainBody
	if seal != nil {
		how, body = sealedBody, seal.Seal(nil, nil, body, []byte(name))
	}
	return fmt.Appendf(nil, "%s%s %s\n%s", magic, how, checksum(name, how, body), body)
}

// decode is the body of a file. Errors are errDamaged, errOtherKey and errNoKey.
func decode(name string, b []byte, seal cipher.AEAD) ([]byte, error) {
	line, body, ok := bytes.Cut(b, []byte("\n"))
	how, sum, two := strings.Cut(strings.TrimPrefix(string(line), magic), " ")
	switch {
	case !ok || !two || !bytes.HasPrefix(line, []byte(magic)):
		return nil, fmt.Errorf("%w: it does not begin as such a file does", errDamaged)
	case sum != checksum(name, how, body):
		return nil, fmt.Errorf("%w: its checksum is wrong", errDamaged)
	case how == plainBody:
		return body, nil
	case how != sealedBody:
		return nil, fmt.Errorf("%w: %q is no way to keep something", errDamaged, how)
	case seal == nil:
		return nil, errNoKey
	}
	body, err := seal.Open(nil, nil, body, []byte(name))
	if err != nil {
		return nil, errOtherKey
	}
	return body, nil
}

func checksum(name, how string, body []byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n", name, how)
	h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}
