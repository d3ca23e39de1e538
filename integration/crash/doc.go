// Package crash proves in simulation that no crash loses an acknowledged byte: it runs workloads on the real volume, commit pipeline, mount,
// replication and target, takes every crash image that its effort allows at every event, and judges each.
//
// # What is real and what is not
//
// Real: fs/volume, the Pipeline and Engine of fs/commit, pool headers and the order of a mount (internal/pool, internal/initiator), the
// machine, lane and full copy of replicate, the machine, grants and flush handlers of target. Simulated: memory (internal/pmem/pmemtest), the fabric
// (verbs/verbstest), control connections, clocks, processes and machines.
//
// A World is one run. Everything in it happens in one goroutine, in an order that its seed decides: threads of the file system beside the committer,
// work requests placed beside both, frames, completions, losses of power. So a run is named by its kind and seed, and repeats bit for bit.
//
// # Images
//
// What devices place is visible at once, and persistent when the target's CPU has flushed it, a FLUSH, or where Config.Device says so a READ (device.go).
//
// At each flush, fence, seal store, sync, and placed work request the images of that copy are enumerated: each cache line, or each sector of an ordinary file,
// holds what is durable for sure or anything stored since. Equal images are judged once.
//
// # Invariants, on every copy, of every image
//
//   - It mounts, and a check finds nothing: no block used twice, the allocator is the complement of what is reachable.
//   - Names, attributes and sizes are those of the group that it recovers to, and that is none before the last acknowledged fsync.
//   - Each byte of a file is that of the version that the volume flushed into that group, or was written to this place of this file later, in place.
//   - What has no name any more goes with Reclaim, and leaves nothing.
//   - Recovering a second time finds the same.
//   - Both super slots are whole, unless a checkpoint is under way.
//   - A copy in the middle of a full copy says Inconsistent, every other one does not. Its term never goes back.
//
// And of the live system: copies that are quiet are equal; the super of a target never stands for a group that the local copy has not sealed; a promotion of a copy in sync
// succeeds, and nothing later is acknowledged by the old primary; an operation without space changes nothing, or the part that is documented; an fsync waits for a group that has everything; no
// allocation takes what the durable state of a copy in use reaches; after a failed msync nothing is acknowledged.
//
// That the simulation can see faults is shown by deliberate ones: internal/mutant.
package crash
