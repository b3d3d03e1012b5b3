package volume

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"
)

// syscalls mounts what this package mounts, and unmounts, by system calls: mount(8) and umount(8) come to the same, with a
// process for each.
type syscalls struct{ mount.Mounter }

func kernel() (mount.Interface, func(target string) error) { return &syscalls{}, detach }

// detach takes a mount out of sight. It goes when nobody has anything of it open any more.
func detach(target string) error {
	return mounted("", target, unix.Unmount(target, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH))
}

// MountSensitiveWithoutSystemd implements mount.Interface. Options are the file system's own.
func (*syscalls) MountSensitiveWithoutSystemd(source, target, fstype string, options, sensitive []string) error {
	return mounted(fstype, target, unix.Mount(source, target, fstype, 0, strings.Join(slices.Concat(options, sensitive), ",")))
}

// MountSensitiveWithoutSystemdWithMountFlags implements mount.Interface for a bind. What flags would tell mount(8) no system
// call does by itself.
func (*syscalls) MountSensitiveWithoutSystemdWithMountFlags(source, target, _ string, _, _, _ []string) error {
	return mounted("bind", target, unix.Mount(source, target, "", unix.MS_BIND, ""))
}

// Unmount implements mount.Interface.
func (*syscalls) Unmount(target string) error {
	return mounted("", target, unix.Unmount(target, unix.UMOUNT_NOFOLLOW))
}

// mounted names what a system call was for.
func mounted(what, target string, err error) error {
	if err == nil {
		return nil
	}
	op := "umount"
	if what != "" {
		op = "mount " + what + " at"
	}
	return &os.PathError{Op: op, Path: target, Err: err}
}
