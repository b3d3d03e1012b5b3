//go:build race

package syncloop_test

// raced says that the race detector is at work. It changes the order of what happens at one moment on purpose.
const raced = true
