// Package observe is how every part says what it does: log lines, events, steps and metrics.
//
// Each part of kubeletkit has one Config field, Observe, of type [To]. Its zero value is silent, so a
// program that imports one part for one purpose pays nothing and sets nothing. A program that
// assembles a node fills in what it has: an slog.Logger, a sender of Kubernetes events, a [Journal]
// that remembers the latest of both for a debug page, a metrics bridge (observe/prom).
//
// The interfaces are small on purpose: a test implements one in five lines.
package observe
