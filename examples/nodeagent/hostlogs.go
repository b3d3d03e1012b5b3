package main

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"github.com/kubeletkit/kubeletkit/internal/below"
)

// hostLogs answers below /logs/ with the files of a folder of this host, and if query is set also with what a query asks for.
type hostLogs struct {
	dir   string
	query bool
}

// ServeHTTP implements http.Handler.
func (l hostLogs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if l.query {
		q, err := parseLogQuery(r.URL.Query())
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		case q != nil && r.URL.Path != "/logs/":
			http.Error(w, "a query is asked of /logs/ itself", http.StatusNotAcceptable)
			return
		case q != nil:
			l.answer(w, r, q)
			return
		}
	}
	http.StripPrefix("/logs", http.FileServerFS(logFiles{l.dir})).ServeHTTP(w, r)
}

// answer answers a query.
func (l hostLogs) answer(w http.ResponseWriter, r *http.Request, q *logQuery) {
	if err := q.check(); err != nil {
		http.Error(w, err.Error(), http.StatusNotAcceptable)
		return
	}
	if q.file != "" {
		http.ServeFileFS(w, r, logFiles{l.dir}, filepath.Clean(q.file))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	q.copy(r.Context(), w, logFiles{l.dir})
}

// logFiles are the files and folders below one folder, as somebody far away may read them: nothing leads out of it.
type logFiles struct{ dir string }

// Open implements fs.FS.
func (l logFiles) Open(name string) (fs.File, error) {
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	const how = os.O_RDONLY | syscall.O_NONBLOCK // a pipe keeps nobody waiting
	f, err := root.OpenFile(name, how, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if to := below.Leads(l.dir, name); to != "" { // a link from the root, as logs of containers have
			f, err = root.OpenFile(to, how, 0)
		}
	}
	if err != nil {
		return nil, refused(name, err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() && !info.IsDir() {
		_ = f.Close() // it was not read
		return nil, refused(name, err)
	}
	return f, nil
}

// refused is an error for who asks: a file is there, or it is not theirs.
func refused(name string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		err = fs.ErrPermission
	}
	return &fs.PathError{Op: "open", Path: name, Err: err}
}

// copyTo writes a file.
func (l logFiles) copyTo(w io.Writer, name string) error {
	f, err := l.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return errors.Join(err, fs.ErrNotExist)
	}
	_, err = io.Copy(w, f)
	return err
}
