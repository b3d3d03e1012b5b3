package bench

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// asked is how often an agent is asked for its summary, after a few times that do not count.
const asked, warm = 200, 10

// summary asks an agent for what is used of the node and its pods, again and again over one connection.
func (r *run) summary(ctx context.Context) error {
	once := r.web
	defer func() { r.web = once }()
	kept := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it signs itself
	defer kept.CloseIdleConnections()
	r.web = &http.Client{Timeout: once.Timeout, Transport: kept}
	var body []byte
	var err error
	for range warm {
		if body, err = r.ask(ctx, "/stats/summary"); err != nil {
			return err
		}
	}
	var s struct{ Pods []struct{} }
	if err := json.Unmarshal(body, &s); err != nil {
		return fmt.Errorf("decode /stats/summary: %w", err)
	}
	if len(s.Pods) < r.pods {
		return fmt.Errorf("/stats/summary has %d of %d pods", len(s.Pods), r.pods)
	}
	before, err := r.now.usage()
	if err != nil {
		return err
	}
	var took []float64
	for range asked {
		begun := time.Now()
		if _, err := r.ask(ctx, "/stats/summary"); err != nil {
			return err
		}
		took = append(took, time.Since(begun).Seconds()*1000)
	}
	after, err := r.now.usage()
	if err != nil {
		return err
	}
	r.add("/stats/summary: p50", "ms", quantile(took, 0.5))
	r.add("/stats/summary: p99", "ms", quantile(took, 0.99))
	r.add("/stats/summary: CPU for each", "ms", (after.cpu-before.cpu).Seconds()*1000/asked)
	r.add("/stats/summary: size", "kB", float64(len(body))/1000)
	return nil
}
