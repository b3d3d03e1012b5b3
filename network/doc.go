// Package network has what pods see of names and addresses: the hostname, /etc/hosts and resolv.conf.
//
// A runtime that makes pods needs these three texts for each of them, and they follow rules that users rely on: which
// part of a long name is cut, which search domains come first, where host aliases stand. The functions take a pod and
// return values; reading the host's own files, and writing the pod's, is left to the caller.
package network
