//go:build unix

package cgroup

import "syscall"

func killProcess(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }
