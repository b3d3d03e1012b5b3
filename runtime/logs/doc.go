// Package logs reads and rotates the log files of containers.
//
// A container runtime writes what a container prints into a file, one record a line:
//
//	2026-01-02T15:04:05.678901234Z stdout F hello
//
// with P instead of F where a long line goes on in the next record of its stream. [Open] gives the text
// back: all of it or the last lines, one stream or both, with or without timestamps, to the end or
// following what comes. [LastLines] is the little that a termination message needs.
//
// [Rotator] moves a log that is too large away, has the runtime open a new one, compresses what is older and
// removes the oldest.
//
// What it promises: records of one line are joined again, and a line counts as one however many
// records it has. Following survives rotation (every line once and in order, compressed or not, as long as
// the files between the one being read and the newest still exist), truncation, a new file that comes late,
// and a record seen half-written. Rotation neither loses nor doubles a line: names of files are in the order
// of their lines whatever the clock does, none replaces another, a log that cannot be reopened is put back,
// and a file goes only when its compressed one is whole and on the disk. Compressing holds up no rotation, so that a
// log which is written faster than that goes is moved away all the same, and what a killed agent left is cleared up by
// the next. A garbled record is passed over and ends nothing. Memory is bounded, however long lines are.
//
// It leaves to the caller: which file belongs to which container, and when a container has ended
// ([Options].Done).
package logs
