//go:build !race

package syncloop_test

const raced = false
