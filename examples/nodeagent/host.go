package main

import (
	"bufio"
	"bytes"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/kubeletkit/kubeletkit/network"
)

// machineMemory is the memory of this machine in bytes, 0 when it cannot be told.
func machineMemory() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) >= 2 && f[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(f[1], 10, 64) // 0 is unknown
			return kib << 10
		}
	}
	return 0
}

// hostAddresses are those of --node-ip, else the one of the interface with the default route, else the first one that
// is not only for this machine.
func hostAddresses(given []netip.Addr) (out []string) {
	for _, ip := range given {
		if !ip.IsUnspecified() {
			out = append(out, ip.String())
		}
	}
	if len(out) > 0 {
		return out
	}
	if name := defaultInterface(); name != "" {
		if i, err := net.InterfaceByName(name); err == nil {
			if addrs, err := i.Addrs(); err == nil {
				if a := usable(addrs); a != "" {
					return []string{a}
				}
			}
		}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	if a := usable(addrs); a != "" {
		return []string{a}
	}
	return nil
}

func usable(addrs []net.Addr) string {
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return ""
}

// defaultInterface is the one the default route goes through, empty when there is none.
func defaultInterface() string {
	b, err := os.ReadFile("/proc/net/route")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) > 7 && f[1] == "00000000" && f[7] == "00000000" {
			return f[0]
		}
	}
	return ""
}

// dns is how pods resolve names. The host's file is read each time: it may change under us.
func dns(o *options) network.DNS {
	d := network.DNS{Servers: o.servers(), Domain: o.kubelet.ClusterDomain}
	file := value(o.kubelet.ResolverConfig)
	if b, err := os.ReadFile(file); err == nil {
		d.Host = network.Parse(b)
	}
	if file == "" { // a resolver of this machine
		d.Instead = &network.Resolv{Searches: []string{"."}}
		for _, ip := range o.hostIPs {
			loopback := "127.0.0.1"
			if strings.Contains(ip, ":") {
				loopback = "::1"
			}
			d.Instead.Servers = append(d.Instead.Servers, loopback)
		}
	}
	return d
}
