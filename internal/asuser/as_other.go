//go:build !unix

package asuser

import "syscall"

func as(uint32) *syscall.SysProcAttr { return nil }
