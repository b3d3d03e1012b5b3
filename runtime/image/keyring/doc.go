// Package keyring finds what opens a private registry: for a pod and an image, the credentials to try, in order.
//
// There are three places where they come from. First the pull secrets a pod names, in docker's two formats. Then docker
// configuration files of the node. Last programs that are asked for them, the exec credential providers of
// CredentialProviderConfig, with the same files, programs and protocol as the kubelet's. Within each place what names more of
// an image comes first; two credentials for the same name are both tried, which lets them be changed without a gap.
//
// [Keyring.Lookup] reads secrets anew each time, so that one which comes to be later helps at the next pull. A secret that is
// missing is an event at the pod and costs nothing else; one that cannot be read is an error, for the pod would be surprised
// to go without. A provider that fails, hangs or is not there is logged, and the others are still asked: it is ended after
// a minute, and pods that do not match it never wait for it. What a provider answered is kept for as long as it said, for the
// image, the registry or everything.
//
// Lookup may be called by many goroutines at once. It returns soon after its context ends, and nothing it started lives on.
// Who pulls is package image; who may use what was pulled, too.
package keyring
