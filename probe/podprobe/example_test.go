package podprobe_test

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/probe/podprobe"
)

func ExampleCheck() {
	c := &v1.Container{
		Name: "db",
		Env:  []v1.EnvVar{{Name: "PORT", Value: "5432"}},
		LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{
			Exec: &v1.ExecAction{Command: []string{"pg_isready", "-p", "$(PORT)"}},
		}},
	}
	check, err := podprobe.Check(c.LivenessProbe, podprobe.Target{
		Container: c,
		Exec: func(_ context.Context, cmd []string) (int, []byte, error) {
			fmt.Println(cmd)
			return 0, []byte("accepting connections"), nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(check(context.Background()))
	// Output:
	// [pg_isready -p 5432]
	// success accepting connections <nil>
}
