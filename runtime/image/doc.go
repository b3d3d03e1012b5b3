// Package image brings the images of containers in, by pull policy, and guards those in use.
//
// A container that is about to start needs its image on the host, and needs it to stay there until the container exists:
// a garbage collector that runs in between must not take it away. [Store.Ensure] gives both. It asks the engine, pulls
// when the policy says so, at most Config.Parallel images at a time, makes a pull that failed wait longer each time, and
// holds the image until a minute after release was called. [Store.RemoveImage] answers runtime.ErrInUse for such an image,
// so that imagegc can be given the Store in place of the engine.
//
// Registries are opened with what Config.Credentials finds, one credential after the other; package keyring is one. An image
// that is here already was brought for somebody: with a Root the Store records with what, and another pod may use the image
// only when it shows a credential that opens it too, else it has to pull. The records are the kubelet's, file by file, so
// that a node can go from one agent to the other and back. Which images are guarded is a [Policy].
//
// Two pods that want the same image at once cause one pull, unless their policy is Always. A pull that has to wait for others
// says so in an event; containers whose image is here wait for nobody.
//
// Failures are *runtime.WaitingError, with the kubelet's reasons. Waiting for another pull ends with the context.
package image
