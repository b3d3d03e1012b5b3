// Package logs reads the log files of containers.
//
// A container runtime writes what a container prints into a file, one record a line:
//
//	2026-01-02T15:04:05.678901234Z stdout F hello
//
// with P instead of F where a long line goes on in the next record of its stream. [Open] gives the text
// back: all of it or the last lines, one stream or both, with or without timestamps, to the end or
// following what comes. [LastLines] is the little that a termination message needs.
//
// What it promises: records of one line are joined again, and a line counts as one however many
// records it has. Following survives rotation (every line once and in order, as long as files between
// the one being read and the newest are not compressed), truncation, a new file that comes late, and a
// record seen half-written. A garbled record is passed over and ends nothing. Memory is bounded, however
// long lines are.
//
// It leaves to the caller: which file belongs to which container, and when a container has ended
// ([Options].Done).
package logs
