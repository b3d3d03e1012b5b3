package main

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnAgentWaitsALittleForThePortOfTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		taken := fmt.Errorf("serve: %w", syscall.EADDRINUSE)
		w, err := onceFree(func() (*web, error) {
			if time.Since(begun) < time.Second {
				return nil, taken
			}
			return new(web), nil
		})
		if w == nil || err != nil || time.Since(begun) > 2*time.Second {
			t.Errorf("%v, %v after %v", w, err, time.Since(begun))
		}
		begun = time.Now()
		if _, err := onceFree(func() (*web, error) { return nil, taken }); !errors.Is(err, syscall.EADDRINUSE) || time.Since(begun) > 2*handover {
			t.Errorf("somebody else's port: %v after %v", err, time.Since(begun))
		}
		begun = time.Now()
		if _, err := onceFree(func() (*web, error) { return nil, syscall.EACCES }); !errors.Is(err, syscall.EACCES) || time.Since(begun) > 0 {
			t.Errorf("another failure: %v after %v", err, time.Since(begun))
		}
	})
}
