package inside

import "strings"

// looks are all that this package looks at. host is a directory of this machine.
func looks(host string) []look {
	var all []look
	for _, group := range [][]look{users(), rights(), namespaces(), names(), volumes(host), rest()} {
		all = append(all, group...)
	}
	return all
}

const status = "grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp):?' /proc/self/status | tr '\\t' ' '"

func users() []look {
	return []look{
		{
			rule: "user, group and groups of the pod", script: "id; " + status + "; touch /w/f; stat -c '%u %g' /w/f; stat -c 'dir %g' /w",
			spec:   "securityContext: {runAsUser: 1000, runAsGroup: 2000, fsGroup: 3000, supplementalGroups: [4000, 5000]}\nvolumes: [{name: w, emptyDir: {}}]",
			fields: "volumeMounts: [{name: w, mountPath: /w}]",
			want:   []string{"Uid: 1000 1000 1000 1000", "Gid: 2000 2000 2000 2000", "Groups: 2000 3000 4000 5000 ?", "1000 3000", "dir 3000"},
		},
		{
			rule: "user and group of the container", script: status,
			spec: "securityContext: {runAsUser: 1000, runAsGroup: 2000}", fields: "securityContext: {runAsUser: 1001, runAsGroup: 2001}",
			want: []string{"Uid: 1001 .*", "Gid: 2001 .*"},
		},
		{
			rule: "groups that are strict", script: status,
			spec: "securityContext: {runAsUser: 1000, runAsGroup: 2000, supplementalGroups: [4000], supplementalGroupsPolicy: Strict}",
			want: []string{"Groups: 2000 4000 ?"},
		},
		{rule: "root where nobody says anything", script: status, want: []string{"Uid: 0 .*", "Gid: 0 .*"}},
		{rule: "not root, but the image is", spec: "securityContext: {runAsNonRoot: true}", refuse: "container has runAsNonRoot and image will run as root"},
		{
			rule: "a user namespace", script: "cat /proc/self/uid_map /proc/self/gid_map; touch /w/f; stat -c 'file %u %g' /w/f; echo words > /dev/termination-log && echo written; ls -ln /etc/hosts | tr -s ' '",
			spec: "hostUsers: false\nvolumes: [{name: w, emptyDir: {}}]", fields: "volumeMounts: [{name: w, mountPath: /w}]",
			want: []string{" +0 +[1-9][0-9]+ +65536", "! +0 +0 .*", "file 0 0", "written", ".* 0 0 .*/etc/hosts"},
		},
		{rule: "the machine's users", script: "cat /proc/self/uid_map", want: []string{" +0 +0 +4294967295"}},
	}
}

func rights() []look {
	return []look{
		{
			rule: "capabilities that are left", script: status, fields: "securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}}",
			want: []string{"CapEff: 0000000000000400", "CapBnd: 0000000000000400", "NoNewPrivs: 1"},
		},
		{rule: "the runtime's capabilities", script: status, want: []string{"CapEff: 00000000a80425fb", "NoNewPrivs: 0", "Seccomp: 0"}},
		{
			rule: "privileged", script: status + "; test -e /dev/loop-control -o -e /dev/kmsg -o -e /dev/mem && echo devices; touch /proc/sys/kernel/x 2>&1; mount -t tmpfs t /tmp && echo mounted",
			fields: "securityContext: {privileged: true}", want: []string{"!CapEff: 00000000a80425fb", "devices", "mounted"},
		},
		{rule: "a root that is only read", script: "touch /x 2>&1", fields: "securityContext: {readOnlyRootFilesystem: true}", want: []string{".*Read-only file system"}},
		{rule: "the runtime's seccomp profile", script: status, fields: "securityContext: {seccompProfile: {type: RuntimeDefault}}", want: []string{"Seccomp: 2"}},
		{
			rule: "a seccomp profile from a file", script: status + "; mkdir /d 2>&1; touch /f && echo touched",
			spec: "securityContext: {seccompProfile: {type: Localhost, localhostProfile: own/nodir.json}}", want: []string{"Seccomp: 2", ".*Operation not permitted", "touched"},
		},
		{
			rule: "what is masked of /proc", script: "grep -o ' /proc/[a-z_/-]* [a-z,]*' /proc/self/mountinfo; wc -c < /proc/timer_list",
			want: []string{" /proc/acpi ro.*", " /proc/timer_list .*", " /proc/sys ro.*", " /proc/irq ro.*", "0"},
		},
		{
			rule: "all of /proc in a user namespace", script: "grep -o ' /proc/[a-z_/-]* [a-z,]*' /proc/self/mountinfo; echo looked",
			spec: "hostUsers: false", fields: "securityContext: {procMount: Unmasked}", want: []string{"! /proc/acpi .*", "! /proc/timer_list .*", "! /proc/sys .*", "looked"},
		},
		{
			rule: "sysctls of the pod", script: "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced",
			spec: "securityContext: {sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: '7'}, {name: kernel/shm_rmid_forced, value: '1'}]}", want: []string{"7", "1"},
		},
	}
}

func namespaces() []look {
	const links = "for n in net pid ipc uts; do readlink /proc/self/ns/$n; done; echo pids $(ls /proc | grep -c '^[0-9]'); tr '\\0' ' ' < /proc/1/cmdline; echo"
	return []look{
		{rule: "namespaces of its own", script: links, want: []string{"!" + namespace("net"), "!" + namespace("pid"), "!" + namespace("ipc"), "sh -c .*"}},
		{rule: "the machine's network", script: links, spec: "hostNetwork: true", want: []string{namespace("net"), "!" + namespace("pid"), "!" + namespace("ipc")}},
		{rule: "the machine's processes", script: links, spec: "hostPID: true", want: []string{namespace("pid"), "!" + namespace("net"), "!sh -c .*"}},
		{rule: "the machine's IPC", script: links, spec: "hostIPC: true", want: []string{namespace("ipc"), "!" + namespace("net")}},
		{rule: "processes shared in the pod", script: links, spec: "shareProcessNamespace: true", want: []string{"!" + namespace("pid"), "/pause.*"}},
	}
}

func names() []look {
	const hosts = "hostname; tr '\\t' ' ' < /etc/hosts; cat /etc/resolv.conf"
	return []look{
		{
			rule: "names of the pod", script: hosts, spec: "hostname: box\nsubdomain: shelf\nhostAliases: [{ip: 192.0.2.7, hostnames: [db.example.invalid, db]}]",
			want: []string{
				"box", "# Kubernetes-managed hosts file.", "127.0.0.1 localhost", "[0-9.]+ box.shelf.default.svc.cluster.example.invalid box",
				"# Entries added by HostAliases.", "192.0.2.7 db.example.invalid db",
				"nameserver 192.0.2.53", "search default.svc.cluster.example.invalid svc.cluster.example.invalid cluster.example.invalid.*", "options ndots:5",
			},
		},
		{
			rule: "the full name as hostname", script: "hostname", spec: "hostname: box\nsubdomain: shelf\nsetHostnameAsFQDN: true",
			want: []string{"box.shelf.default.svc.cluster.example.invalid"},
		},
		{
			rule: "the machine's names", script: hosts, spec: "hostNetwork: true\nhostAliases: [{ip: 192.0.2.7, hostnames: [db]}]",
			want: []string{"# Kubernetes-managed hosts file .host network.*", "192.0.2.7 db", "!nameserver 192.0.2.53"},
		},
		{
			rule: "a resolver of its own", script: hosts,
			spec: "dnsPolicy: None\ndnsConfig: {nameservers: [192.0.2.1, 192.0.2.2, 192.0.2.3], searches: [a.example, b.example], options: [{name: ndots, value: '2'}, {name: edns0}]}",
			want: []string{"nameserver 192.0.2.1", "nameserver 192.0.2.3", "search a.example b.example", "options ndots:2 edns0|options edns0 ndots:2"},
		},
		{
			rule: "a hosts file that the pod brings", script: "cat /etc/hosts", spec: "volumes: [{name: h, hostPath: {path: /etc/hostname}}]",
			fields: "volumeMounts: [{name: h, mountPath: /etc/hosts}]", want: []string{"!# Kubernetes-managed.*"},
		},
	}
}

func volumes(host string) []look {
	on := func(path string) string {
		return "volumes: [{name: h, hostPath: {path: " + path + "}}, {name: e, emptyDir: {}}]"
	}
	mount := func(more string) string { return "volumeMounts: [{name: h, mountPath: /h" + more + "}]" }
	const write = "touch /h/x 2>&1 && echo top; touch /h/below/x 2>&1 && echo below; grep ' /h' /proc/self/mountinfo"
	return []look{
		{rule: "read-only, but not below", spec: on(host), fields: mount(", readOnly: true"), script: write, want: []string{"!top", "below"}},
		{rule: "read-only below too", spec: on(host), fields: mount(", readOnly: true, recursiveReadOnly: Enabled"), script: write, want: []string{"!top", "!below", ".*below.*Read-only file system"}},
		{rule: "nothing of the machine's mounts", spec: on(host), fields: mount(""), script: "grep ' /h ' /proc/self/mountinfo", want: []string{"!.*master:.*", "!.*shared:.*"}},
		{rule: "the machine's mounts are seen", spec: on(host), fields: mount(", mountPropagation: HostToContainer"), script: "grep ' /h ' /proc/self/mountinfo", want: []string{".*master:.*", "!.*shared:.*"}},
		{
			rule: "and shown to it", spec: on(host), fields: mount(", mountPropagation: Bidirectional") + "\nsecurityContext: {privileged: true}",
			script: "grep ' /h ' /proc/self/mountinfo", want: []string{".*shared:.*"},
		},
		{rule: "a file in a volume", spec: on(host), fields: mount(", subPath: real/file"), script: "cat /h", want: []string{"content"}},
		{rule: "through a link within it", spec: on(host), fields: mount(", subPath: in/file"), script: "cat /h", want: []string{"content"}},
		{rule: "a link out of it", spec: on(host), fields: mount(", subPath: out"), refuse: `failed to prepare subPath for volumeMount "h" of container "c"`},
		{rule: "a link up and out of it", spec: on(host), fields: mount(", subPath: real/up"), refuse: "leads out of the volume"},
		{
			rule: "a path by its variables", spec: on(host), fields: "volumeMounts: [{name: e, mountPath: /all}, {name: e, mountPath: /mine, subPathExpr: of/$(WHO)}]",
			script: "touch /mine/f; ls /all/of/me; stat -c '%a' /all /mine", want: []string{"f", "777"},
		},
		{rule: "an image as a volume", spec: "volumes: [{name: i, image: {reference: '" + image + "'}}]", fields: "volumeMounts: [{name: i, mountPath: /i}]", script: "ls /i/bin/busybox; touch /i/x 2>&1", want: []string{"/i/bin/busybox", ".*Read-only file system"}},
		{rule: "and a part of it", spec: "volumes: [{name: i, image: {reference: '" + image + "'}}]", fields: "volumeMounts: [{name: i, mountPath: /i, subPath: bin}]", script: "ls /i/busybox", want: []string{"/i/busybox"}},
		{
			rule: "memory as a disk", spec: "volumes: [{name: m, emptyDir: {medium: Memory, sizeLimit: 16Mi}}]", fields: "volumeMounts: [{name: m, mountPath: /m}]",
			script: "grep ' /m ' /proc/self/mountinfo", want: []string{".* tmpfs .*size=16384k.*"},
		},
	}
}

func rest() []look {
	return []look{
		{rule: "no terminal", script: "test -t 0 || echo no in; test -t 1 || echo no out", want: []string{"no in", "no out"}},
		{rule: "a terminal", fields: "tty: true\nstdin: true", script: "test -t 0 && echo in; test -t 1 && echo out", want: []string{"in", "out"}},
		{rule: "where it works and who it is", fields: "workingDir: /etc", script: "pwd; echo $WHO", want: []string{"/etc", "me"}},
		{rule: "where its last words go", fields: "terminationMessagePath: /run/words", script: "stat -c '%a' /run/words", want: []string{"666"}},
		{
			rule: "limits of a guaranteed pod", fields: "resources: {limits: {cpu: 100m, memory: 32Mi}}", script: limits,
			want: []string{"shares 102", "quota 10000", "period 100000", "memory 33554432", "swap 33554432|swap", oomLast},
		},
		{rule: "limits of one that asks for nothing", script: limits, want: []string{"shares 2", "quota -1", "oom 1000"}},
		{
			rule: "limits of the pod as a whole", spec: "resources: {limits: {cpu: 200m, memory: 64Mi}}", script: limits,
			want: []string{"quota 20000", "memory 67108864", oomLast},
		},
	}
}

// oomLast is the score of who is killed last. Where this machine lets nobody have one below its own, it is that.
const oomLast = "oom -997|oom 0"

// limits are read from the files of cgroup v1; on v2 they have other names, and there is nothing to read.
var limits = strings.Join([]string{
	"cd /sys/fs/cgroup",
	"echo shares $(cat cpu/cpu.shares)", "echo quota $(cat cpu/cpu.cfs_quota_us)", "echo period $(cat cpu/cpu.cfs_period_us)",
	"echo memory $(cat memory/memory.limit_in_bytes)", "echo swap $(cat memory/memory.memsw.limit_in_bytes)", "echo oom $(cat /proc/self/oom_score_adj)",
}, "; ")
