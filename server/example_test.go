package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/kubeletkit/kubeletkit/server"
)

// A server needs something that knows pods, and somebody who may ask.
func ExampleNew() {
	h, err := server.New(server.Config{
		Pods:   pods{podOf("web", "u1", "app")},
		Access: server.AdminAccess{Token: "from server.WriteToken"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, token := range []string{"", "from server.WriteToken"} {
		r := httptest.NewRequest(http.MethodGet, "/containerLogs/default/web/", http.NoBody)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Print(w.Code, " ", w.Body)
	}
	// Output:
	// 401 Unauthorized
	// 400 {"message":"Missing container name: one of app."}
}
