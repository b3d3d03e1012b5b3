package logs

import (
	"io"
	"strings"
	"testing"
)

func BenchmarkOpen(b *testing.B) {
	var file strings.Builder
	for i := 0; file.Len() < 16<<20; i++ {
		file.WriteString(rec(i%60, []string{"stdout", "stderr"}[i%2], "F", "a line of a length that is seen most often in logs of services, some hundred bytes"))
	}
	path := write(b, file.String())
	for _, bb := range []struct {
		name string
		o    Options
		size int
	}{
		{"everything", Options{}, file.Len()},
		{"timestamps", Options{Timestamps: true}, file.Len()},
		{"tail of 10", Options{Tail: 10}, 0},
		{"tail of 10000", Options{Tail: 10000}, 0},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(int64(bb.size))
			b.ReportAllocs()
			for b.Loop() {
				r, err := Open(b.Context(), path, bb.o)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, r); err != nil {
					b.Fatal(err)
				}
				_ = r.Close()
			}
		})
	}
}
