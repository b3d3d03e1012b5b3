// Package apifake is an API server in memory, for tests of what talks to one.
//
// A [Server] speaks the protocol itself, JSON and protobuf, so that a test runs the real client: lists and watches with
// field selectors, resource versions, bookmarks and the list by watch, strategic merge patches of objects and their status,
// preconditions, graceful deletion of bound pods. It has no admission, no validation and no authorization. Connections
// are pipes, so all of it runs in a testing/synctest bubble; it is an http.Handler, too.
//
// What goes wrong in the field is a method away: [Server.SetDown], [Server.CutWatches], [Server.Compact],
// [Server.Freeze], and [Server.Answer] for everything else. [Server.Calls] tells what has been asked.
//
// All methods are safe for concurrent use. Objects go in and come out as copies.
package apifake
