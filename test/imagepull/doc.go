// Package imagepull pulls from a registry that wants to know who asks, through the image store, the keyring and a real
// containerd. It holds tests only.
package imagepull
