package main

import (
	"context"
	"net"
	"os"
)

// notifier tells the service manager when the agent is ready and when it stops, if it asked to be told (sd_notify).
type notifier struct{}

// Run tells READY, waits for ctx, and tells STOPPING.
func (n notifier) Run(ctx context.Context) error {
	_ = notify("READY=1") // nobody to tell is no failure
	<-ctx.Done()
	_ = notify("STOPPING=1")
	return nil
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
