package plan

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Crash back-off: the first restart is immediate, the second waits BackoffFirst after the end of the instance before it,
// each further one twice as long up to Input.BackoffMax, or BackoffMax. An instance that ended BackoffReset after the last start
// was asked for begins anew.
const (
	BackoffFirst = 10 * time.Second
	BackoffMax   = 300 * time.Second
	BackoffReset = 600 * time.Second
)

// Backoff is what must be remembered of a container name to make restarts wait. The zero value is a container that was
// never restarted.
type Backoff struct {
	Delay   time.Duration // before the next restart, from the end of the instance before it
	Updated time.Time     // when Delay was set
	Key     string        // image and resources it holds for
}

// next says until when a container that ended at finished has to wait, and what to remember. While it waits that is
// the entry as it was, with the delay being served. most is the longest there is.
func (b Backoff) next(key string, finished, now time.Time, most time.Duration) (Backoff, time.Time) {
	if b.Key != key || b.Updated.IsZero() || finished.Sub(b.Updated) > BackoffReset {
		return Backoff{Delay: min(BackoffFirst, most), Updated: now, Key: key}, time.Time{}
	}
	if until := finished.Add(b.Delay); until.After(now) {
		return b, until
	}
	return Backoff{Delay: min(2*b.Delay, most), Updated: now, Key: key}, time.Time{}
}

// backoffKey changes with what a user would change to mend a crashing container.
func backoffKey(c *v1.Container) string {
	resources, _ := json.Marshal(c.Resources) // plain values: cannot fail
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s\x00%s", c.Name, c.Image, resources)
	return strconv.FormatUint(h.Sum64(), 16)
}

// Hash is the fingerprint of what a running container cannot change: name and image. It equals the one the kubelet
// writes, so that an agent that takes a node over from a kubelet restarts nothing.
func Hash(c *v1.Container) string {
	fields, _ := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	h := fnv.New32a()
	fmt.Fprintf(h, "([]uint8)%v", fields)
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}
