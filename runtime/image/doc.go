// Package image brings the images of containers in, by pull policy, and guards those in use.
//
// A container that is about to start needs its image on the host, and needs it to stay there until the container exists:
// a garbage collector that runs in between must not take it away. [Store.Ensure] gives both. It asks the engine, pulls
// when the policy says so, at most Config.Parallel images at a time, makes a pull that failed wait longer each time, and
// holds the image until a minute after release was called. [Store.RemoveImage] answers runtime.ErrInUse for such an image,
// so that imagegc can be given the Store in place of the engine.
//
// Failures are *runtime.WaitingError, with the kubelet's reasons. Waiting for another pull ends with the context.
package image
