package logs

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
)

const blockSize = 64 << 10

// source gives the lines of one file, piece by piece. What has no newline yet is kept until there is one.
type source struct {
	file *os.File
	at   int64        // where in the file the next byte is read
	end  int64        // where reading ends; negative: wherever the file does
	zip  *gzip.Reader // nil: the file is plain
	buf  []byte
	r, w int  // buf[r:w] is read and not given out
	mid  bool // the next piece goes on in a line
}

// next returns the next piece of a line, without newline: the whole line where it fits the buffer. It is good until
// the next call. io.EOF says that there is no more for now.
func (s *source) next() (piece []byte, first, last bool, err error) {
	seen := 0
	for {
		if i := bytes.IndexByte(s.buf[s.r+seen:s.w], '\n'); i >= 0 {
			piece = s.buf[s.r : s.r+seen+i]
			s.r += len(piece) + 1
			first, s.mid = !s.mid, false
			return piece, first, true, nil
		}
		seen = s.w - s.r
		if seen == len(s.buf) && seen > 0 {
			s.r = s.w
			first, s.mid = !s.mid, true
			return s.buf, first, false, nil
		}
		if err := s.fill(); err != nil {
			return nil, false, false, err
		}
	}
}

// fill reads more behind what is there already.
func (s *source) fill() error {
	if s.buf == nil {
		s.buf = make([]byte, blockSize)
	}
	if s.r > 0 {
		s.w = copy(s.buf, s.buf[s.r:s.w])
		s.r = 0
	}
	room := s.buf[s.w:]
	if s.end >= 0 {
		room = room[:min(int64(len(room)), s.end-s.at)]
	}
	if len(room) == 0 {
		return io.EOF
	}
	n, err := s.read(room)
	s.at += int64(n)
	s.w += n
	if n > 0 {
		return nil // an error comes back with the next call
	}
	return err
}

func (s *source) read(room []byte) (int, error) {
	if s.zip == nil {
		return s.file.ReadAt(room, s.at)
	}
	n, err := s.zip.Read(room)
	if err != nil {
		err = io.EOF // what is damaged has no more to give
	}
	return n, err
}

// rest is the line that has not ended, or what was not given out of it.
func (s *source) rest() []byte { return s.buf[s.r:s.w] }

// turn goes on with another file, or with the same, from the beginning. What was not given out is gone.
func (s *source) turn(f *os.File, zip *gzip.Reader) {
	if f != s.file {
		_ = s.file.Close() // it was only read
	}
	s.file, s.zip, s.at, s.r, s.w, s.mid = f, zip, 0, 0, 0, false
}
