package runtimetest

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Shell reads from a container's command what it will do, as far as
//
//	sh -c 'trap "exit 3" TERM; echo started; sleep 2; echo $NAME >&2; exit 1'
//
// goes: echo, sleep, exit, true, false, trap, wait, and jobs behind & that nobody waits for. Where such
// a script runs on, it is deaf to the stop signal unless a trap says otherwise: so is the first process
// of a container. Any other command runs until it is asked to stop, and then exits with 0.
func Shell(c *runtime.ContainerConfig) Behavior {
	s := interpret(append(append([]string(nil), c.Command...), c.Args...), c.Env)
	b := Behavior{Exits: s.ends, After: s.at, Code: s.code, Lines: s.lines}
	switch {
	case s.foreign:
		b.Exits = false
	case s.trapped:
		b.StopCode = s.trapCode
	default:
		b.StopAfter = Deaf
	}
	return b
}

// forever is longer than any test; two of them make no overflow.
const forever = 100 * 365 * 24 * time.Hour

// script is what a command will have done.
type script struct {
	lines    []Line
	at       time.Duration // when it ends
	ends     bool
	code     int32
	trapped  bool // the stop signal ends it, with trapCode
	trapCode int32
	foreign  bool // it came to a program that is not known, or has no words: the image's own program
	program  string
	env      map[string]string
}

func interpret(cmd []string, env []runtime.Env) *script {
	s := &script{ends: true, env: map[string]string{}}
	for _, e := range env {
		s.env[e.Name] = e.Value
	}
	if isShell(cmd) {
		for _, st := range statements(cmd[2]) {
			if !st.background && !s.do(st.words) {
				break
			}
		}
		return s
	}
	s.do(cmd)
	return s
}

func isShell(cmd []string) bool {
	return len(cmd) >= 3 && (cmd[0] == "sh" || cmd[0] == "/bin/sh") && cmd[1] == "-c"
}

// do carries out one command and says whether the next one comes to its turn.
func (s *script) do(words []string) bool {
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	s.code = 0
	switch arg(0) {
	case "true":
	case "false":
		s.code = 1
	case "echo":
		s.echo(words[1:])
	case "sleep":
		seconds, err := strconv.ParseFloat(arg(1), 64)
		if err != nil || !(seconds >= 0) { // NaN too
			s.code = 1
			break
		}
		s.at = min(s.at+time.Duration(min(seconds, forever.Seconds())*float64(time.Second)), forever)
	case "exit":
		s.code = exitCode(arg(1))
		return false
	case "wait":
		s.ends = false
		return false
	case "trap":
		how := strings.Fields(arg(1))
		s.trapped = len(how) > 0
		if len(how) == 2 && how[0] == "exit" {
			s.trapCode = exitCode(how[1])
		}
	default:
		s.foreign, s.program, s.code = true, arg(0), 127
		return false
	}
	return true
}

func (s *script) echo(words []string) {
	l := Line{After: s.at}
	if n := len(words); n > 0 && words[n-1] == ">&2" {
		words, l.Stderr = words[:n-1], true
	}
	l.Text = os.Expand(strings.Join(words, " "), func(name string) string { return s.env[name] })
	s.lines = append(s.lines, l)
}

func exitCode(s string) int32 {
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return 2
	}
	return int32(n)
}

// statement is one command of a script.
type statement struct {
	words      []string
	background bool
}

// statements cuts a script at ; & and line ends and into words, heeding quotes.
func statements(text string) []statement {
	var (
		list  []statement
		now   statement
		word  strings.Builder
		open  bool // a word has begun
		quote rune
	)
	endWord := func() {
		if open {
			now.words = append(now.words, word.String())
		}
		word.Reset()
		open = false
	}
	endStatement := func(background bool) {
		endWord()
		if now.background = background; len(now.words) > 0 {
			list = append(list, now)
		}
		now = statement{}
	}
	for _, r := range text {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, open = r, true
		case r == ';' || r == '\n':
			endStatement(false)
		case r == '&' && word.String() != ">":
			endStatement(true)
		case r == ' ' || r == '\t':
			endWord()
		default:
			word.WriteRune(r)
			open = true
		}
	}
	endStatement(false)
	return list
}
