package logs_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/kubeletkit/kubeletkit/runtime/logs"
)

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "0.log")
	records := "2026-01-02T03:04:05.1Z stdout F ready\n" +
		"2026-01-02T03:04:06.2Z stdout P a long \n" +
		"2026-01-02T03:04:06.2Z stdout F line\n"
	if err := os.WriteFile(path, []byte(records), 0o600); err != nil {
		log.Fatal(err)
	}

	r, err := logs.Open(context.Background(), path, logs.Options{Tail: 1, Timestamps: true})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", text)
	// Output: 2026-01-02T03:04:06.200000000Z a long line
}
