// Package access decides who may talk to a node, by asking the API server.
//
// A node's HTTP API runs commands in other people's containers. Who stands at the door has a client certificate, a token
// or nothing, and only the API server knows what tokens are worth and who may do what. An [Access] has the two methods a
// server needs for that: Authenticate finds out who asks, Authorize whether they may. It takes the same
// decisions as the kubelet does with the same settings.
//
// # Who asks
//
// In this order, until one knows: a client certificate that [Config].ClientCAFile or ClientCAs signed (the common name is
// the user, organizations are groups), a bearer token, a bearer token shown as a websocket subprotocol. Tokens go to the
// API server as a TokenReview. Everybody known belongs to system:authenticated. With Anonymous, who shows nothing is
// system:anonymous; who shows something bad never is.
//
// A token that was good is taken out of the request, so that nobody passes it on.
//
// # What they may
//
// Authorize asks with a SubjectAccessReview whether the user may verb the subresource of this one node. With AlwaysAllow
// it says yes to everybody known.
//
// # What holds always
//
//   - An error lets nobody in. The zero Config is refused by [New].
//   - Answers are kept for the kubelet's times, in bounded memory, under a keyed hash: no token stays in memory. Errors are not kept.
//   - Of equal questions at one time only one goes out. When whoever asked leaves, one of the others asks on.
//   - Trouble of the API server is worth four more attempts in about four seconds, less when the request ends before.
//   - No goroutine is started: work is done in the calls, and ends with their context.
//
// All methods are safe for concurrent use. TLS is the caller's: [Access.RequestCertificates] says what it needs to ask for.
package access
