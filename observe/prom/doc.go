// Package prom shows the metrics of all parts to Prometheus.
//
// Parts of kubeletkit make their instruments through [observe.Metrics] and import no metrics library. A program that wants
// them scraped gives [New] the registerer it serves from:
//
//	registry := prometheus.NewRegistry()
//	to := observe.To{Metrics: prom.New(registry)}
//
// Two nodes in one process share a registry when each wraps it with a label of its own (prometheus.WrapRegistererWith).
// Asked twice for the same name with the same labels it gives the instrument registered first, also when something else in
// the program registered it. Instruments are safe for concurrent use and never block.
package prom
