package main

import (
	"github.com/kubeletkit/kubeletkit/observe"
	"github.com/kubeletkit/kubeletkit/runtime/image/keyring"
)

// keyringConfig is what credentials of registries are found with.
type keyringConfig struct {
	o   *options
	m   *member
	obs observe.To
}

// newKeyring finds credentials in the secrets of pods, in files of this node and with the programs that are configured.
func newKeyring(c keyringConfig) (*keyring.Keyring, error) {
	k := keyring.Config{Files: keyring.NodeFiles(c.o.flags.RootDir), Dir: c.o.flags.ProviderDir, Observe: c.obs}
	if path := c.o.flags.ProviderConfig; path != "" {
		var err error
		if k.Providers, k.Hash, err = keyring.ReadProviders(path); err != nil {
			return nil, err
		}
	}
	if c.m != nil {
		k.Secret, k.Token = c.m.objects.Secret, c.m.objects.Token
		k.Account = c.m.watched.Account
	}
	return keyring.New(k)
}
