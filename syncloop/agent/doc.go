// Package agent is a node agent in one value: pods of your sources run on your engine, and your sink is told how they are.
//
// You have a notion of your own of what shall run on a machine, something that runs it, and somebody who wants to know how
// it goes. Between these stand a dozen parts of this module that every agent joins in the same way. Name yours in a
// [Config]; [New] joins the others to them:
//
//	engine, err := process.New(process.Config{Root: "/var/lib/mine/engine"})
//	...
//	a, err := agent.New(agent.Config{
//		Sources: map[string]syncloop.PodSource{"mine": source}, Engine: engine, Notifier: engine, Sink: sink, Root: "/var/lib/mine",
//	})
//	...
//	return a.Run(ctx)
//
// # What it promises
//
// What the parts promise, together: whole pods over the engine (runtime/podruntime) with volumes (volume), probes
// (probe/manager), restarts and endings (syncloop), admission (syncloop/admit), removal of dead containers (imagegc), and
// log files that do not grow without end (runtime/logs). Nothing it starts is a child that must end with it: the pods of an
// agent that ends go on, and one that starts adopts them.
//
// The sink is called by a status.Manager: it may be slow, and gets the newest. Run stops the parts from the top down,
// the status manager last, so that what was found out while they stop is still told.
//
// A rule of your own for who may run here stands beside the standard ones, and a kind of volumes of your own beside those of
// package volume, told by its csi driver, for instance:
//
//	Admit: append(agent.Standard(engine), mine),
//	OtherVolumes: func(ctx context.Context, pod *v1.Pod, v *v1.Volume, dir string) (runtime.Volume, error) {
//		if v.CSI == nil || v.CSI.Driver != "maps.example" {
//			return runtime.Volume{}, errors.New("there are only volumes of maps.example")
//		}
//		return runtime.Volume{Path: dir}, fetch(ctx, v.CSI.VolumeAttributes, dir)
//	},
//
// # What it leaves to you
//
// Where pods come from and statuses go. How big the machine is: unless Config.Admit says so (admit.Fit with Own), pods are
// refused for host ports that are taken, but never for lack of room. What a node of a cluster has beyond that: an API server, ConfigMaps and Secrets,
// cgroups of pods, eviction, collection of images. examples/nodeagent joins the parts by hand for these; its assembly
// begins where this one ends. A program that serves the kubelet's HTTP API gives server.Config what [Agent.Roster],
// [Agent.Runtime] and [Agent.Health] return (examples/standalone).
//
// It imports the parts named above. No engine and no API server comes with it.
package agent
