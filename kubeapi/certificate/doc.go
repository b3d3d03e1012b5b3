// Package certificate keeps the certificates of a node: the one it shows to the API server, and the one its own server shows.
//
// A node that joins a cluster has a bootstrap token and needs a certificate of its own; a year later that one is about
// to expire and nobody logs in to renew it. A [Manager] asks the API server for certificates with
// CertificateSigningRequests, keeps them on disk, asks for the next one in time, and hands the newest to a tls.Config for
// each handshake, so nothing restarts. [NewClient] makes the one for the way to the API server, [NewServing] the one for
// the node's own server. [Files] is for serving certificates somebody else puts there.
//
// # Asking
//
// Keys are ECDSA P-256, a new one for each certificate. A key waits in <dir>/kubelet-client.key.tmp (kubelet-server.key.tmp)
// until its certificate is there, and the request's name is made from it: an agent that starts again finds the request that
// still waits for approval, rather than add another. After 15 minutes it is asked anew, under the same name while that one still
// waits. A request that was denied or failed is not repeated; a new one with a new key follows after 15 minutes. Errors of the API server are
// tried again after 2 s, doubling to 32 s.
//
// A certificate is renewed at a random point between 70 and 90 percent of its life, be that ten seconds. One that lacks an address of the node
// is renewed as soon as the address shows. One for another subject than asked for is refused.
//
// # On disk
//
// The files are the kubelet's, to the letter, so that a node moves from the kubelet here and back:
// kubelet-client-current.pem is a link to kubelet-client-<date and time>.pem, mode 0600, certificates first, then the key. A
// new file is whole on disk before the link changes, which happens in one moment. Older files stay.
//
// # What may go wrong
//
// A client certificate that has expired (or is damaged) at the start is an error of [NewClient] that names file, time and
// remedy; with a Bootstrap to ask, it is a warning and a new one is asked for. Run fails when the API server has refused
// for five minutes and there is no good certificate: then someone has to bring new credentials. In everything else it goes
// on trying. A serving certificate is never worth that.
//
// Run starts no goroutine. Methods are safe for concurrent use.
//
// What to ask ([Requester], a small interface), the kubeconfig around the file ([WriteKubeconfig] writes one) and closing
// connections made with an older certificate (Changed tells when) are the caller's.
package certificate
