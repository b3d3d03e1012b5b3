package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// packages are the Debian packages a bed needs: network plug-ins with what they call, what runc and the
// images are compiled with, and the shell for images.
func packages() []string {
	return []string{
		"bash-static", "busybox-static", "containernetworking-plugins", "dbus-daemon", "gcc", "iproute2", "iptables",
		"libc6-dev", "libseccomp-dev", "pkg-config",
	}
}

// EnsurePackages installs those of a bed's Debian packages, and of more, that are missing. log may be nil.
func EnsurePackages(ctx context.Context, log io.Writer, more ...string) error {
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		return errors.New("check packages: there is no dpkg-query; the test bed needs Debian or a relative of it")
	}
	// dpkg-query fails for names it has never heard of, and lists the others all the same.
	want := append(packages(), more...)
	status, _ := exec.CommandContext(ctx, "dpkg-query", append([]string{"-W", "-f", "${Package} ${db:Status-Status}\n"}, want...)...).Output()
	if err := ctx.Err(); err != nil { // dpkg-query was ended before it had listed all
		return fmt.Errorf("check packages: %w", err)
	}
	missing := missingPackages(want, string(status))
	if len(missing) == 0 {
		return nil
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("packages are missing; as root: apt-get install %s", strings.Join(missing, " "))
	}
	if log != nil {
		fmt.Fprintf(log, "bed: installing %s\n", strings.Join(missing, " "))
	}
	install := append([]string{"install", "-y", "--no-install-recommends"}, missing...)
	if apt(ctx, install...) == nil {
		return nil
	}
	// On a fresh machine the lists of packages are missing or old.
	if err := apt(ctx, "update"); err != nil {
		return err
	}
	return apt(ctx, install...)
}

// missingPackages are the wanted ones that a listing of "name status" lines does not call installed.
func missingPackages(want []string, status string) []string {
	var missing []string
	for _, p := range want {
		if !strings.Contains("\n"+status, "\n"+p+" installed\n") {
			missing = append(missing, p)
		}
	}
	return missing
}

func apt(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-o", "DPkg::Lock::Timeout=300"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, msg)
	}
	return nil
}
