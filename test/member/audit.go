package member

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"
)

// A Request is a line of the API server's audit log.
type Request struct {
	Verb      string    `json:"verb"`
	URI       string    `json:"requestURI"`
	UserAgent string    `json:"userAgent"`
	Stage     string    `json:"stage"`
	At        time.Time `json:"requestReceivedTimestamp"`
	User      struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Response struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
}

// What names what was asked for: "patch pods/status", "create events".
func (r Request) What() string {
	return r.Verb + " " + path.Join(r.Object.Resource, r.Object.Subresource)
}

func (r Request) String() string {
	return fmt.Sprintf("%s %s %s: %d %s", r.At.Format("15:04:05.000"), r.Verb, r.URI, r.Response.Code, r.Response.Message)
}

// An Audit reads an audit log from where it was made on.
type Audit struct {
	path   string
	offset int64
}

// NewAudit begins at the present end of a log.
func NewAudit(log string) (*Audit, error) {
	info, err := os.Stat(log)
	if errors.Is(err, os.ErrNotExist) {
		return &Audit{path: log}, nil
	}
	if err != nil {
		return nil, err
	}
	return &Audit{path: log, offset: info.Size()}, nil
}

// Next are the requests since the call before that were answered, in the order in which they were; of a watch the start
// counts. A log that was changed for a new one in between is an error: it has lines that are not seen.
func (a *Audit) Next() ([]Request, error) {
	f, err := os.Open(a.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() < a.offset {
		return nil, errors.Join(err, fmt.Errorf("read %s: it is shorter than before", a.path))
	}
	if _, err := f.Seek(a.offset, io.SeekStart); err != nil {
		return nil, err
	}
	requests, n, err := parseAudit(f)
	a.offset += n
	return requests, err
}

// parseAudit reads whole lines and tells how many bytes they had.
func parseAudit(from io.Reader) (requests []Request, n int64, err error) {
	r := bufio.NewReader(from)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // the rest is still being written
			return requests, n, nil
		}
		if err != nil {
			return requests, n, err
		}
		n += int64(len(line))
		var q Request
		if err := json.Unmarshal(bytes.TrimSpace(line), &q); err != nil {
			return requests, n, fmt.Errorf("read audit log: %w in %.100q", err, line)
		}
		if q.Verb == "watch" && q.Stage == "ResponseComplete" && q.Response.Code == 200 {
			continue // it was counted when it began
		}
		requests = append(requests, q)
	}
}

// Lasting are the refusals (403) that were not cleared: no later request like it was granted within a time.
func Lasting(all []Request, within time.Duration) (refused []Request) {
	for i, r := range all {
		if r.Response.Code != 403 || cleared(r, all[i+1:], within) {
			continue
		}
		refused = append(refused, r)
	}
	return refused
}

func cleared(r Request, later []Request, within time.Duration) bool {
	for _, o := range later {
		if o.At.Sub(r.At) > within {
			continue // lines are in the order of the answers
		}
		if o.Verb == r.Verb && o.Object == r.Object && o.User == r.User && o.Response.Code < 300 {
			return true
		}
	}
	return false
}

// Count tells how often each thing was asked for.
func Count(all []Request) map[string]int {
	n := map[string]int{}
	for _, r := range all {
		n[r.What()]++
	}
	return n
}
