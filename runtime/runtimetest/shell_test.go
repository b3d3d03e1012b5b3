package runtimetest

import (
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestShellReadsWhatAContainerWillDo(t *testing.T) {
	type want struct {
		exits     bool
		after     time.Duration
		code      int32
		stopAfter time.Duration
		stopCode  int32
		output    string
	}
	for name, row := range map[string]struct {
		cmd  []string
		want want
	}{
		"no command is the image's program: it runs": {nil, want{}},
		"so does a program that is not known":        {[]string{"nginx", "-g"}, want{}},
		"a script ends with its last command":        {sh("echo hi; false"), want{exits: true, code: 1, stopAfter: Deaf, output: "0s hi\n"}},
		"exit ends it early":                         {sh("exit 3; echo no"), want{exits: true, code: 3, stopAfter: Deaf}},
		"sleep takes time": {
			sh("sleep 1.5; echo late; sleep 1"), want{exits: true, after: 2500 * time.Millisecond, stopAfter: Deaf, output: "1.5s late\n"},
		},
		"a plain program is deaf as the first process": {[]string{"sleep", "60"}, want{exits: true, after: time.Minute, stopAfter: Deaf}},
		"a trap hears the stop signal":                 {sh(`trap "exit 7" TERM; sleep 60 & wait`), want{stopCode: 7}},
		"an empty trap does not":                       {sh(`trap "" TERM; sleep 60`), want{exits: true, after: time.Minute, stopAfter: Deaf}},
		"variables are the container's":                {sh(`echo "$A-${B}" '$A' >&2`), want{exits: true, stopAfter: Deaf, output: "0s! x- x\n"}},
		"what sleeps for ever is no overflow":          {sh("sleep inf; sleep 1e300"), want{exits: true, after: forever, stopAfter: Deaf}},
		"lines of a script are commands":               {sh("true\nexit 4"), want{exits: true, code: 4, stopAfter: Deaf}},
	} {
		t.Run(name, func(t *testing.T) {
			b := Shell(&runtime.ContainerConfig{Command: row.cmd, Env: []runtime.Env{{Name: "A", Value: "x"}}})
			got := want{exits: b.Exits, after: b.After, code: b.Code, stopAfter: b.StopAfter, stopCode: b.StopCode}
			for _, l := range b.Lines {
				got.output += l.After.String()
				if l.Stderr {
					got.output += "!"
				}
				got.output += " " + l.Text + "\n"
			}
			if !row.want.exits {
				got.after, got.code = 0, 0
			}
			if got != row.want {
				t.Errorf("\ngot  %+v\nwant %+v", got, row.want)
			}
		})
	}
}

func sh(script string) []string { return []string{"sh", "-c", script} }

func FuzzShellReadsAnyScript(f *testing.F) {
	f.Add(`trap "exit 3" TERM; echo started; sleep 2 & wait; exit`)
	f.Add("echo >&2; sleep -1; sleep nan; 'open")
	f.Fuzz(func(t *testing.T, script string) {
		if s := interpret(sh(script), nil); s.at < 0 || s.at > forever {
			t.Errorf("it ends after %v", s.at)
		}
	})
}
