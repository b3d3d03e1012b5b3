// Package volume puts the volumes of pods in place on this host and takes them away again.
//
// A container runtime can only show a container what already lies somewhere on the host: an empty directory, a file with
// the pod's labels, a piece of memory that looks like a disk. A [Manager] makes these before the first container of a pod
// starts ([Manager.Mount]), says where they lie, and removes them once the last one has ended ([Manager.Unmount]). For a
// container that mounts only a part of a volume, [Manager.Subpath] finds that part without ever being led out of the volume.
//
// # Kinds
//
//   - emptyDir, on disk, and in memory with medium Memory: a tmpfs as large as the least of sizeLimit, the pod's memory limit
//     and the node's memory; with medium HugePages in pages of the size that the pod asks for;
//   - hostPath, checked against its type, or created. Links in such a path are followed, wherever they lead, and the check is
//     of what they lead to: who may use hostPath is trusted with the host;
//   - configMap, secret, downwardAPI, and projected from these, tokens of the pod's service account, trust bundles and
//     certificates of the pod: written anew when what they show has changed, all files at once, so that a reader sees either
//     the old or the new ones. A subPath into such a volume stays with what it was bound to. All but configMap lie in memory;
//   - image, which the container runtime mounts itself.
//
// Any other kind is put in place by Config.Other. Without it, such a volume is an error that names it and its kind, as is one
// whose objects, tokens, bundles or certificates Config has nobody to ask for. A volume that no container mounts is left alone.
//
// # What comes from an API server
//
// [Objects] and [Tokens] are asked in the background, which is why such volumes need [Manager.Run]. Mount waits a quarter of a
// second for what it does not have, and then answers runtime.ErrInProgress; Config.Changed hears when there is more to say: a
// value, an error, or an object that came to be. A missing object or key is an error of Mount in the kubelet's form, which its
// caller tells people, unless the volume says that it is optional.
//
// From then on Run does the rest: it follows the objects, unless they are immutable, and writes their files anew. It asks for
// a token anew at four fifths of its life, after a day at most, and again after a while if that fails. What was shown before
// stays when it cannot be brought up to date, also when an agent that was started again finds no API server: containers
// keep their files, Mount succeeds, and one event FailedMount says what is wrong. Unmount ends all this for a pod.
//
// # What it promises
//
//   - All may be repeated at any time, and the process killed at any instant: what is in place is read back from the disk and
//     the mount table. What is in place already is neither replaced nor mounted over, so that running containers keep it.
//   - Unmount needs no spec. It unmounts all that is mounted below the pod's volumes, the last mount first, and then removes
//     what is left there, without following a link, without entering anything still mounted, and within bounds of memory and
//     open files however deep a container has nested its directories. The target of a hostPath is never touched.
//   - Different pods do not wait for each other; calls for one pod come one after the other. All methods return soon after
//     ctx ends, an unmount under way aside.
//
// The directories are the kubelet's: <Root>/pods/<uid>/volumes/kubernetes.io~<kind>/<name>, with markers below plugins and
// bound subPaths below volume-subpaths. Everything above a volume must be writable by its owner alone.
package volume
