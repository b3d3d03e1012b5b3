package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"
)

// notifier tells the service manager when the agent is ready, that it is still well, and when it stops, as far as it asked to
// be told (sd_notify).
type notifier struct {
	healthy func() error
	every   time.Duration // between two signs of life; 0: nobody waits for them
	log     *slog.Logger
}

// newNotifier reads what the service manager wants. Its watchdog (WatchdogSec=) ends who does not tell twice in its time.
func newNotifier(n notifier) (notifier, error) {
	text, pid := os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")
	if text == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) { // it is meant for somebody else
		return n, nil
	}
	micros, err := strconv.ParseInt(text, 10, 64)
	within := time.Duration(micros) * time.Microsecond
	if err != nil || within <= time.Second || within/time.Microsecond != time.Duration(micros) {
		return n, fmt.Errorf("WATCHDOG_USEC is %q; it must be a number of microseconds, of more than a second (WatchdogSec= of the service)", text)
	}
	n.every = within / 2
	return n, nil
}

// Run tells READY, signs of life as long as the agent is well, and STOPPING when ctx ends.
func (n notifier) Run(ctx context.Context) error {
	_ = notify("READY=1") // nobody to tell is no failure
	n.watched(ctx)
	<-ctx.Done()
	_ = notify("STOPPING=1")
	return nil
}

// watched tells signs of life until ctx ends.
func (n notifier) watched(ctx context.Context) {
	if n.every == 0 {
		return
	}
	tick := time.NewTicker(n.every)
	defer tick.Stop()
	for {
		if err := n.healthy(); err != nil {
			n.log.Error("the service manager is not told that the agent is well", "err", err)
		} else if err := notify("WATCHDOG=1"); err != nil {
			n.log.Error("the service manager cannot be told that the agent is well", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// notify sends one message to the socket in NOTIFY_SOCKET. Without one it does nothing.
func notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	if path[0] == '@' { // abstract
		path = "\x00" + path[1:]
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte(state))
	return err
}
