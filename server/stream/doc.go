// Package stream passes exec, attach and port-forward sessions on to the streaming server of a container runtime.
//
// A container runtime that speaks CRI answers a wish for a session with the address of a server of its own. [Proxy]
// asks for that address and copies between client and server, SPDY and WebSocket alike, until one of them ends or the
// request's context does.
//
// It promises that the address stays here: it is in no answer, no header and no error that a client sees, a redirect
// is not followed, and what the client showed to be let in is not passed on. A server that does not answer with a
// switch of protocols is an error (502), but its refusals (400 and above) reach the client.
//
// It leaves to the caller: who may open a session (server.Access).
package stream
