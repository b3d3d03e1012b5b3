package images

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

const e2e = "registry.k8s.io/e2e-test-images/"

//go:embed nnp/nnp.c
var nnpSource []byte

// An image under one name that upstream's specs ask for, or several.
type image struct {
	refs []string
	root rootFS
	conf config
}

// BuildE2E makes the images that upstream's conformance specs run, apart from those that Build makes. bin is the
// directory of the programs that go into them: agnhost, resource-consumer, consume-cpu, sample-apiserver,
// sample-device-plugin, etcd and coredns. The rest comes from this machine, whose Debian packages decide what is in
// the images. With the same inputs they are equal to the byte. each gets one image after another; its error ends the
// work.
func BuildE2E(ctx context.Context, bin string, each func(Archive) error) error {
	b := &builder{ctx: ctx, bin: bin}
	for _, i := range b.all() {
		if b.err != nil {
			return b.err
		}
		for _, ref := range i.refs {
			data, digest, err := pack(ref, runtime.GOARCH, i.root, i.conf)
			if err != nil {
				return fmt.Errorf("build %s: %w", ref, err)
			}
			if err := each(Archive{Ref: ref, Digest: digest, Data: data}); err != nil {
				return err
			}
		}
	}
	return b.err
}

// builder puts root file systems together and keeps the first error.
type builder struct {
	ctx  context.Context //nolint:containedctx // lives for one call
	bin  string
	base rootFS // busybox, once it is made
	err  error
}

func (b *builder) all() []image {
	env := []string{searchPath}
	entry := func(program string, args ...string) config {
		return config{Env: env, Entrypoint: []string{program}, Cmd: args}
	}
	agnhost := entry("/agnhost", "pause")
	agnhost.ExposedPorts = ports("80/tcp", "8080/tcp", "8081/tcp", "9376/tcp", "5000/tcp")
	webServer := config{Env: env, Cmd: []string{"/usr/sbin/nginx"}, ExposedPorts: ports("80/tcp")}
	shell := config{Env: env, Cmd: []string{"sh"}}
	nonroot := shell
	nonroot.User = "1234"
	web := b.web()
	return []image{
		{[]string{e2e + "agnhost:2.66.1", e2e + "agnhost:2.55"}, b.agnhost(), agnhost},
		{[]string{e2e + "nginx:1.27.0-2", e2e + "nginx:1.28.0-2"}, web, webServer},
		{[]string{e2e + "glibc-dns-testing:2.1.1"}, b.dnsTesting(), shell},
		{[]string{e2e + "nonroot:1.5"}, b.busybox(), nonroot},
		{[]string{e2e + "nonewprivs:1.4"}, b.noNewPrivileges(), entry("/usr/local/bin/nnp")},
		{[]string{e2e + "ipc-utils:1.4"}, b.host("ipcs"), shell},
		{[]string{e2e + "perl:5.26"}, b.host("perl"), config{Env: env, Cmd: []string{"perl"}}},
		{[]string{e2e + "resource-consumer:1.14"}, b.with(b.busybox(), "resource-consumer", "consumer", "consume-cpu", "consume-cpu"), entry("/consumer")},
		{[]string{e2e + "kitten:1.8"}, b.pet("kitten"), entry("/agnhost", "test-webserver")},
		{[]string{e2e + "nautilus:1.8"}, b.pet("nautilus"), entry("/agnhost", "test-webserver")},
		{[]string{e2e + "sample-apiserver:1.29.2"}, b.with(b.busybox(), "sample-apiserver", "sample-apiserver"), entry("/sample-apiserver")},
		{[]string{e2e + "sample-device-plugin:1.7"}, b.with(b.busybox(), "sample-device-plugin", "sampledeviceplugin"), entry("/sampledeviceplugin", "-alsologtostderr")},
		{[]string{"registry.k8s.io/etcd:3.7.0-0"}, b.with(b.busybox(), "etcd", "usr/local/bin/etcd"), config{Env: env, Cmd: []string{"etcd"}}},
	}
}

func ports(names ...string) map[string]struct{} {
	set := map[string]struct{}{}
	for _, n := range names {
		set[n] = struct{}{}
	}
	return set
}

func (b *builder) keep(err error) {
	if b.err == nil {
		b.err = err
	}
}

// read reads a file of this machine.
func (b *builder) read(path string) []byte {
	data, err := os.ReadFile(path)
	b.keep(err)
	return data
}

// busybox is the small system that most images begin with.
func (b *builder) busybox() rootFS {
	if b.base == nil && b.err == nil {
		b.base, b.err = busyboxRoot(b.ctx)
	}
	if b.base == nil {
		return rootFS{}
	}
	return maps.Clone(b.base)
}

// with adds built programs: pairs of a name in bin and a path in the image.
func (b *builder) with(root rootFS, pairs ...string) rootFS {
	for i := 0; i+1 < len(pairs); i += 2 {
		root.addParents(pairs[i+1])
		root.addFile(pairs[i+1], b.read(filepath.Join(b.bin, pairs[i])), 0o755)
	}
	return root
}

// addHost adds a program of this machine, and the libraries it is linked to, to /bin.
func (b *builder) addHost(root rootFS, program string) {
	for _, dir := range []string{"/usr/bin", "/usr/sbin", "/bin", "/sbin"} {
		path, err := filepath.EvalSymlinks(filepath.Join(dir, program))
		if err != nil {
			continue
		}
		root.addFile("bin/"+program, b.read(path), 0o755)
		out, _ := exec.CommandContext(b.ctx, "ldd", path).Output() // fails for a static program, which needs none
		for _, library := range libraries(string(out)) {
			name := strings.TrimPrefix(library, "/")
			root.addParents(name)
			root.addFile(name, b.read(library), 0o755)
		}
		return
	}
	b.keep(fmt.Errorf("build images: this machine has no %s", program))
}

// libraries are the files in a listing of ldd.
func libraries(listing string) []string {
	var files []string
	for word := range strings.FieldsSeq(listing) {
		if filepath.IsAbs(word) {
			files = append(files, word)
		}
	}
	return files
}

// agnhost is the program of many roles that most specs run, beside the network tools they call in its place.
func (b *builder) agnhost() rootFS {
	root := b.with(b.busybox(), "agnhost", "agnhost")
	root.addLink("agnhost-2", "agnhost")
	root.addDir("uploads", 0o755)
	root.addLink("bin/sh", "bash-static") // busybox's shell runs its own nc and ip, whatever else is there
	for _, tool := range []string{"bash", "curl", "dig", "getent", "ip", "iperf", "nc", "nslookup", "socat"} {
		b.addHost(root, tool)
	}
	root.append("etc/passwd", "user-defined-in-image:x:1000:1000::/home:/bin/sh\n")
	root.append("etc/group", "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n")
	cert, key, err := localhost()
	b.keep(err)
	root.addFile("localhost.crt", cert, 0o644)
	root.addFile("localhost.key", key, 0o644)
	return root
}

// nginx has nginx's name and writes its number where nginx does. It is PID 1 or not.
const nginx = `#!/bin/sh
echo nginx >/proc/$$/comm
(umask 022; echo $$ >/var/run/nginx.pid) 2>/dev/null
busybox httpd -f -p 80 -h /usr/share/nginx/html &
trap 'kill $!; exit 0' TERM QUIT INT
wait
`

// web is busybox's web server in the place of nginx.
func (b *builder) web() rootFS {
	root := b.busybox()
	const page = "usr/share/nginx/html/index.html"
	root.addParents(page)
	root.addFile(page, []byte("<html><head><title>Welcome to nginx!</title></head><body>It works.</body></html>\n"), 0o644)
	root.addParents("usr/sbin/nginx")
	root.addFile("usr/sbin/nginx", []byte(nginx), 0o755)
	root.addParents("var/run/nginx.pid")
	return root
}

// dnsTesting resolves names as glibc does, and can be a DNS server.
func (b *builder) dnsTesting() rootFS {
	root := b.with(b.busybox(), "coredns", "coredns")
	for _, tool := range []string{"dig", "getent", "hostname", "nslookup"} {
		b.addHost(root, tool)
	}
	return root
}

// noNewPrivileges has a program that tells whether its set-uid bit did anything.
func (b *builder) noNewPrivileges() rootFS {
	root := b.busybox()
	tmp, err := os.MkdirTemp("", "kubeletkit-images-")
	if err != nil {
		b.keep(err)
		return root
	}
	defer os.RemoveAll(tmp)
	nnp, err := compileC(b.ctx, nnpSource, filepath.Join(tmp, "nnp"))
	b.keep(err)
	root.addParents("usr/local/bin/nnp")
	root.addFile("usr/local/bin/nnp", nnp, 0o4755)
	return root
}

// host is busybox with a program of this machine.
func (b *builder) host(program string) rootFS {
	root := b.busybox()
	b.addHost(root, program)
	return root
}

// pet is a web server with a picture, which one can tell from the other pet's.
func (b *builder) pet(name string) rootFS {
	root := b.with(b.busybox(), "agnhost", "agnhost")
	root.addFile("data.json", fmt.Appendf(nil, "{\n  \"image\": \"%s.jpg\"\n}\n", name), 0o644)
	root.addFile(name+".jpg", []byte{0xff, 0xd8, 0xff, 0xd9}, 0o644) // the shortest file that is a picture
	return root
}

// addParents adds the directories on the way to name that are not there.
func (fs rootFS) addParents(name string) {
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if _, ok := fs[dir]; !ok {
			fs.addDir(dir, 0o755)
		}
	}
}

// append adds lines to a text file.
func (fs rootFS) append(name, text string) {
	f := fs[name]
	f.data = bytes.Join([][]byte{f.data, []byte(text)}, nil)
	fs[name] = f
}
