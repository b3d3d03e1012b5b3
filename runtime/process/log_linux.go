package process

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// maxLine is how much of a line is written at once, as containerd does.
const maxLine = 16 << 10

// logFile is a container's log in the CRI format: time, stream, F for a whole line or P for a part of one, text.
type logFile struct {
	path    string
	readers []*os.File
	copying sync.WaitGroup

	mu   sync.Mutex // guards what follows
	file *os.File   // nil: nobody wants a log
	line []byte
}

// openLog opens the log at path; an empty path is no log.
func openLog(path string) (*logFile, error) {
	l := &logFile{path: path}
	if path == "" {
		return l, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return l, l.reopen()
}

// reopen goes on in a new file where the old one was renamed.
func (l *logFile) reopen() error {
	if l.path == "" {
		return nil
	}
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.Close()
	}
	l.file = f
	return nil
}

// pipes are the ends a container writes to.
func (l *logFile) pipes() (out, errOut *os.File, err error) {
	var ends []*os.File
	for _, stream := range []string{"stdout", "stderr"} {
		r, w, err := os.Pipe()
		if err != nil {
			for _, f := range ends {
				f.Close()
			}
			return nil, nil, err
		}
		ends = append(ends, w)
		l.readers = append(l.readers, r)
		l.copying.Go(func() { l.copy(r, stream) })
	}
	return ends[0], ends[1], nil
}

// copy writes lines until nobody holds the other end any more.
func (l *logFile) copy(from io.Reader, stream string) {
	r := bufio.NewReaderSize(from, maxLine)
	for {
		text, err := r.ReadSlice('\n')
		switch {
		case err == nil:
			l.write(stream, "F", text[:len(text)-1])
		case len(text) > 0:
			l.write(stream, "P", text)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// write adds a line in one piece. A disk that is full costs lines, never the container.
func (l *logFile) write(stream, tag string, text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return
	}
	l.line = time.Now().AppendFormat(l.line[:0], time.RFC3339Nano)
	for _, part := range []string{" ", stream, " ", tag, " "} {
		l.line = append(l.line, part...)
	}
	l.line = append(append(l.line, text...), '\n')
	_, _ = l.file.Write(l.line)
}

// drain waits until all that was written is in the log. Who still holds the other ends after that time is not heard.
func (l *logFile) drain(patience time.Duration) {
	for _, r := range l.readers {
		_ = r.SetReadDeadline(time.Now().Add(patience))
	}
	l.copying.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.Close()
	}
}
