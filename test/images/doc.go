// Package images builds the container images the tests and the demo run, without any registry: from a
// few lines of C, from Debian's static busybox, and from a small Go program.
//
// The images are made in memory and written as OCI archives for `ctr images import`. Equal inputs make
// an equal image with an equal digest (owners are root, times are 1970), so an image that a runtime has
// already needs no second import. Building needs gcc, /bin/busybox (static) and the go command.
package images
