package status

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// A naive model of what the sink may see: for each pod a subsequence of what was noted that ends with the newest, then
// Finished once.
func TestRandomHistoriesAgainstANaiveModel(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		luck := rand.New(rand.NewPCG(seed, 3))
		s := &sink{delay: time.Duration(r.IntN(3)) * 100 * time.Millisecond, fail: func(string) error {
			if luck.IntN(3) == 0 {
				return errors.New("bad luck")
			}
			return nil
		}}
		noted := map[string][]string{}
		bubble(t, Config{Sink: s, Parallel: 1 + r.IntN(4)}, func(b rig) {
			over := map[string]bool{}
			for i := range 80 {
				uid := string(rune('a' + r.IntN(5)))
				switch {
				case over[uid]:
				case r.IntN(15) == 0:
					over[uid] = true
					noted[uid] = append(noted[uid], "finished")
					b.finish(uid)
				default:
					message := fmt.Sprint(i - r.IntN(2)) // sometimes the same again
					noted[uid] = append(noted[uid], message)
					b.update(uid, message)
				}
				time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
			}
			time.Sleep(10 * time.Minute)
			if pods, queue := b.held(); pods != len(noted)-len(over) || queue != 0 {
				t.Errorf("%d pods remembered, %d queued", pods, queue)
			}
		})
		checkHistory(t, s, noted)
		if t.Failed() {
			t.Fatalf("seed %d\n%v\n%v", seed, noted, s.calls)
		}
	}
}

func checkHistory(t *testing.T, s *sink, noted map[string][]string) {
	t.Helper()
	got := map[string][]string{}
	for _, call := range s.calls {
		uid, what, _ := strings.Cut(call, " ")
		got[uid] = append(got[uid], what)
	}
	for uid, all := range noted {
		rest := all
		for _, what := range got[uid] {
			i := slices.Index(rest, what)
			if i < 0 {
				t.Errorf("%s: told %s, which was not noted then", uid, what)
				return
			}
			rest = rest[i+1:]
		}
		told := got[uid]
		if len(told) == 0 || told[len(told)-1] != all[len(all)-1] {
			t.Errorf("%s: last told %v, last noted %s", uid, told, all[len(all)-1])
		}
		if n := len(all); all[n-1] == "finished" && n > 1 && (len(told) < 2 || told[len(told)-2] != all[n-2]) {
			t.Errorf("%s: finished before the newest status was told", uid)
		}
	}
}
