// Package logind is a shutdown.Notice over systemd: it takes a delay lock of logind, and hears of PrepareForShutdown.
//
// logind holds a shutdown up for five seconds by default. When pods need longer, Watch writes the file 99-kubelet.conf into
// logind's configuration and has it read anew. From a logind that then still grants less, such as where its configuration is
// read-only, it takes what there is, and says so (Short). The lock is given back when the
// pods have ended, and taken again when the shutdown is called off. It needs root and the system bus.
package logind
