package main

import (
	"fmt"
	"net"
	"os"
	"time"
)

// notifyReady tells the service manager that the daemon is ready (sd_notify(3)), if it asked for that.
func notifyReady() error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	// The package net takes a leading @ for the abstract namespace, as the variable does.
	c, err := net.DialTimeout("unixgram", path, time.Second)
	if err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err = c.Write([]byte("READY=1"))
	return err
}
