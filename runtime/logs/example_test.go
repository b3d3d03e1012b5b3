package logs_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/kubeletkit/kubeletkit/runtime/logs"
)

func ExampleOpen() {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("example-%d.log", os.Getpid()))
	records := "2026-01-02T03:04:05.1Z stdout F ready\n" +
		"2026-01-02T03:04:06.2Z stdout P a long \n" +
		"2026-01-02T03:04:06.2Z stdout F line\n"
	if err := os.WriteFile(path, []byte(records), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	defer os.Remove(path)

	r, err := logs.Open(context.Background(), path, logs.Options{Tail: 1, Timestamps: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	fmt.Printf("%s%v", text, err)
	// Output:
	// 2026-01-02T03:04:06.200000000Z a long line
	// <nil>
}
