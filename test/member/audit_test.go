package member

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func request(verb, resource, name string, code int, at time.Duration) (r Request) {
	r.Verb, r.Object.Resource, r.Object.Name, r.Response.Code = verb, resource, name, code
	r.At = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(at)
	return r
}

func TestLastingRefusals(t *testing.T) {
	no := request("get", "secrets", "s", 403, 0)
	for rule, c := range map[string]struct {
		later Request
		want  int
	}{
		"granted soon after":      {request("get", "secrets", "s", 200, 4*time.Second), 0},
		"granted too late":        {request("get", "secrets", "s", 200, 6*time.Second), 1},
		"another one was granted": {request("get", "secrets", "t", 200, time.Second), 1},
		"refused again":           {request("get", "secrets", "s", 403, time.Second), 2},
		"gone by then":            {request("get", "secrets", "s", 404, time.Second), 1},
	} {
		if got := Lasting([]Request{no, c.later}, 5*time.Second); len(got) != c.want {
			t.Errorf("%s: %v, want %d", rule, got, c.want)
		}
	}
}

func TestAuditReadsOnlyWhatIsNewAndWhole(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.log")
	add := func(text string) {
		f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	add(`{"verb":"get","objectRef":{"resource":"pods"}}` + "\n")
	a, err := NewAudit(log)
	if err != nil {
		t.Fatal(err)
	}
	add(`{"verb":"patch","objectRef":{"resource":"pods","subresource":"status"}}` + "\n" +
		`{"verb":"watch","stage":"ResponseStarted","objectRef":{"resource":"pods"},"responseStatus":{"code":200}}` + "\n" +
		`{"verb":"watch","stage":"ResponseComplete","objectRef":{"resource":"pods"},"responseStatus":{"code":200}}` + "\n" + `{"verb":"cre`)
	got, err := a.Next()
	if want := map[string]int{"patch pods/status": 1, "watch pods": 1}; err != nil || !reflect.DeepEqual(Count(got), want) {
		t.Errorf("the first look: %v, %v", got, err)
	}
	add(`ate","objectRef":{"resource":"events"}}` + "\n")
	got, err = a.Next()
	if want := map[string]int{"create events": 1}; err != nil || !reflect.DeepEqual(Count(got), want) {
		t.Errorf("the second look: %v, %v", got, err)
	}
}
