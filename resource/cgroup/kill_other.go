//go:build !unix

package cgroup

import "errors"

func killProcess(int) error { return errors.ErrUnsupported }
