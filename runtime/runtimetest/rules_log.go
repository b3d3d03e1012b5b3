package runtimetest

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func logRules() map[string]func(*scene) {
	return map[string]func(*scene){
		"log has each line with time, stream and tag": func(s *scene) {
			conf := s.sandboxConfig(s.pod)
			c := s.container("main", `echo "hello $WHO"; echo bad >&2`, conf)
			c.Env = []runtime.Env{{Name: "WHO", Value: "world"}}
			s.exited(s.start(s.run(conf), c))
			for stream, text := range map[string]string{"stdout": "hello world", "stderr": "bad"} {
				line := s.untilLogged(conf, c, text)
				if line.stream != stream || line.tag != "F" || time.Since(line.at).Abs() > time.Minute {
					s.Errorf("%q: %+v", text, line)
				}
			}
		},
		"log keeps the order of lines": func(s *scene) {
			conf := s.sandboxConfig(s.pod)
			var script strings.Builder
			for i := range 30 {
				fmt.Fprintf(&script, "echo %d;", i)
			}
			c := s.container("main", script.String(), conf)
			s.exited(s.start(s.run(conf), c))
			s.untilLogged(conf, c, "29")
			b, err := os.ReadFile(conf.LogDir + "/" + c.LogPath)
			s.fine("read the log", err)
			next, last := 0, time.Time{}
			for l := range strings.Lines(string(b)) {
				line, err := parseLine(strings.TrimSuffix(l, "\n"))
				s.fine("log", err)
				if line.text != fmt.Sprint(next) || line.at.Before(last) {
					s.Fatalf("line %d is %+v, after one of %v", next, line, last)
				}
				next, last = next+1, line.at
			}
		},
		"log is the container's own, attempt by attempt": func(s *scene) {
			conf := s.sandboxConfig(s.pod)
			sandbox := s.run(conf)
			first := s.container("main", "echo first", conf)
			second := s.container("main", "echo second", conf)
			second.Attempt, second.LogPath = 1, "main/1.log"
			for _, c := range []*runtime.ContainerConfig{first, second} {
				s.exited(s.start(sandbox, c))
			}
			s.untilLogged(conf, first, "first")
			s.untilLogged(conf, second, "second")
		},
	}
}

// logLine is one line of a log file in the CRI format.
type logLine struct {
	at                time.Time
	stream, tag, text string
}

func parseLine(s string) (logLine, error) {
	f := strings.SplitN(s, " ", 4)
	if len(f) != 4 {
		return logLine{}, fmt.Errorf("log line %q has no four parts", s)
	}
	at, err := time.Parse(time.RFC3339Nano, f[0])
	return logLine{at: at, stream: f[1], tag: f[2], text: f[3]}, err
}

// untilLogged waits until a container has printed a line and returns it.
func (s *scene) untilLogged(of *runtime.SandboxConfig, c *runtime.ContainerConfig, text string) logLine {
	s.Helper()
	var found logLine
	path := of.LogDir + "/" + c.LogPath
	s.until(fmt.Sprintf("%q is in %s", text, path), func() bool {
		b, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		whole := b[:strings.LastIndexByte(string(b), '\n')+1]
		for l := range strings.Lines(string(whole)) {
			line, err := parseLine(strings.TrimSuffix(l, "\n"))
			if err != nil {
				s.Fatal(err)
			}
			if line.text == text {
				found = line
				return true
			}
		}
		return false
	})
	return found
}
