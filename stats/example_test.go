package stats_test

import (
	"fmt"
	"os"

	"github.com/kubeletkit/kubeletkit/stats"
)

// What a host is and has, from files that were kept of one.
func ExampleCollector_Machine() {
	c, err := stats.New(stats.Config{Root: os.DirFS("testdata/v1")}) // nil: this host
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := c.Machine()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s on %s: %d cores, %d MiB\n", m.OSImage, m.Kernel, m.Cores, m.Memory>>20)
	// Output: Debian GNU/Linux 12 (bookworm) on 6.1.0-18-amd64: 2 cores, 7812 MiB
}
