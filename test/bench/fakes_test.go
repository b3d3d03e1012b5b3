package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/kubeletkit/kubeletkit/test/agent"
)

// TestMain is the program that serves the fakes, too.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != "serve" {
		os.Exit(m.Run())
	}
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	socket, api := flags.String("socket", "", ""), flags.String("api", "", "")
	_ = flags.Parse(os.Args[2:]) // it exits
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := Serve(ctx, *socket, *api)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Our agent in both columns has all figures, with and without the API server.
func TestFakes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an agent needs root")
	}
	for _, member := range []bool{false, true} {
		t.Run(fmt.Sprint("member=", member), func(t *testing.T) {
			t.Parallel()
			program := agent.Program(t)
			tables, err := Fakes(t.Context(), FakesConfig{
				Self: os.Args[0], Kubelet: program, NodeAgent: program,
				Pods: []int{6}, Restart: 6, Span: time.Second, Member: member, Log: t.Output(),
			})
			if err != nil || len(tables) != 1 {
				t.Fatalf("%d tables, %v", len(tables), err)
			}
			t.Log(tables[0])
			for _, f := range tables[0].Figures {
				for _, a := range []string{Kubelet, NodeAgent} {
					why := f.Why[a]
					if len(f.Values[a]) != 1 && (!member && why != "there is no API server" || member && why != "the API server has known it all the time") {
						t.Errorf("%s, %s: %v, %s", a, f.Name, f.Values[a], f.Why[a])
					}
				}
				if f.Name == "after a kill: containers started again" && f.Median[NodeAgent] != 0 {
					t.Errorf("%v %s", f.Median[NodeAgent], f.Name)
				}
			}
		})
	}
}

func TestFakesNeedPrograms(t *testing.T) {
	if _, err := Fakes(t.Context(), FakesConfig{}); err == nil {
		t.Error("nothing to measure was no error")
	}
	if _, err := Node(t.Context(), NodeConfig{}); err == nil {
		t.Error("no cluster was no error")
	}
}
