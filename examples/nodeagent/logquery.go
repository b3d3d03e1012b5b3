package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os/exec"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"
)

// logQuery asks for the log of services, or of one file (KEP-2258).
type logQuery struct {
	services     []string
	files        []string
	file         string // the only one of files, once it is checked
	since, until time.Time
	tail, boot   *int
	pattern      string
}

// parseLogQuery reads a query; nil: none was asked.
func parseLogQuery(v url.Values) (*logQuery, error) {
	q := &logQuery{pattern: v.Get("pattern")}
	for _, name := range v["query"] {
		switch {
		case strings.ContainsAny(name, `/\`):
			q.files = append(q.files, name)
		case strings.TrimSpace(name) != "":
			q.services = append(q.services, name)
		}
	}
	var errs []error
	if v.Has("query") && len(q.files)+len(q.services) == 0 {
		errs = append(errs, errors.New("query must name a service or a file"))
	}
	for name, to := range map[string]*time.Time{"sinceTime": &q.since, "untilTime": &q.until} {
		if text := v.Get(name); text != "" {
			var err error
			if *to, err = time.Parse(time.RFC3339, text); err != nil {
				errs = append(errs, fmt.Errorf("%s is %q; it must be a time such as 2006-01-02T15:04:05Z", name, text))
			}
		}
	}
	for name, to := range map[string]**int{"tailLines": &q.tail, "boot": &q.boot} {
		if text := v.Get(name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s is %q; it must be a whole number", name, text))
			}
			*to = &n
		}
	}
	if len(errs) == 0 && !v.Has("query") && !q.chooses() {
		return nil, nil
	}
	return q, errors.Join(errs...)
}

// chooses says that not all of a log is wanted.
func (q *logQuery) chooses() bool {
	return !q.since.IsZero() || !q.until.IsZero() || q.tail != nil || q.boot != nil || q.pattern != ""
}

const (
	mostTail     = 100_000
	mostServices = 4
	longestName  = 256
)

// harmless are the characters that a service's name may have: it becomes an argument of a program that root runs.
var harmless = regexp.MustCompile(`^[a-zA-Z0-9_.:@-]+$`)

// check says what cannot be answered.
func (q *logQuery) check() error {
	var errs []error
	say := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	say(len(q.files)+len(q.services) == 0, "query must name a service or a file")
	say(len(q.files) > 0 && len(q.services) > 0, "query must name services or a file, not both")
	say(len(q.files) > 1, "query must name one file only")
	say(len(q.files) > 0 && q.chooses(), "a file is read as a whole: leave out all but query")
	say(len(q.services) > mostServices, "query must name no more than %d services", mostServices)
	for _, s := range q.services {
		say(len(s) > longestName || !harmless.MatchString(s) || s[0] == '-', "query: %.40q is no name of a service", s)
	}
	say(!q.since.IsZero() && !q.until.IsZero() && q.since.After(q.until), "untilTime must not be before sinceTime")
	say(q.boot != nil && *q.boot > 0, "boot must be 0 for this one, or less for those before it")
	say(q.tail != nil && (*q.tail < 0 || *q.tail > mostTail), "tailLines must be between 0 and %d", mostTail)
	if _, err := syntax.Parse(q.pattern, syntax.Perl); err != nil {
		errs = append(errs, fmt.Errorf("pattern: %w", err))
	}
	if len(q.files) == 1 {
		q.file = strings.TrimLeft(strings.ReplaceAll(q.files[0], `\`, "/"), "/")
		say(!fs.ValidPath(q.file), "query: %.40q is no path below the folder of logs", q.files[0])
	}
	return errors.Join(errs...)
}

const journalctl = "journalctl"

// copy writes the logs of services: from the journal, or those it does not know from files named for them.
func (q *logQuery) copy(ctx context.Context, w io.Writer, files logFiles) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	units, _ := exec.CommandContext(ctx, journalctl, "--field", "_SYSTEMD_UNIT").Output() // without a journal there are files
	known := map[string]bool{}
	for unit := range strings.Lines(string(units)) {
		known[strings.TrimSuffix(strings.TrimSpace(unit), ".service")] = true
	}
	var journal, other []string
	for _, s := range q.services {
		if known[strings.TrimSuffix(s, ".service")] {
			journal = append(journal, s)
		} else {
			other = append(other, s)
		}
	}
	if len(journal) > 0 {
		cmd := exec.CommandContext(ctx, journalctl, q.arguments(journal)...)
		cmd.Stdout, cmd.Stderr = w, w
		if err := cmd.Run(); err != nil {
			fmt.Fprintf(w, "\nfailed to get the log of %s: %v\n", strings.Join(journal, ", "), err)
		}
	}
	if len(other) > 0 && q.chooses() {
		fmt.Fprintf(w, "\nthe journal does not know %s; files are read as a whole: leave out all but query\n", strings.Join(other, ", "))
		return
	}
	for _, s := range other {
		var err error
		for _, name := range []string{s, s + ".log", s + "/" + s + ".log"} {
			if err = files.copyTo(w, name); !errors.Is(err, fs.ErrNotExist) {
				break
			}
		}
		if err != nil {
			fmt.Fprintf(w, "\nlog not found for %s\n", s)
		}
	}
}

// arguments of journalctl.
func (q *logQuery) arguments(services []string) []string {
	const layout = "2006-01-02 15:04:05 UTC"
	out := []string{"--utc", "--no-pager", "--output=short-precise"}
	if !q.since.IsZero() {
		out = append(out, "--since="+q.since.UTC().Format(layout))
	}
	if !q.until.IsZero() {
		out = append(out, "--until="+q.until.UTC().Format(layout))
	}
	if q.tail != nil {
		out = append(out, "--lines="+strconv.Itoa(*q.tail))
	}
	for _, s := range services {
		out = append(out, "--unit="+s)
	}
	if q.pattern != "" {
		out = append(out, "--grep="+q.pattern)
	}
	if q.boot != nil {
		out = append(out, "--boot="+strconv.Itoa(*q.boot))
	}
	return out
}
