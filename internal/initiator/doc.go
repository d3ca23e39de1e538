// Package initiator puts the parts of a mount together: pool, volume, replicas, committer, FUSE server, control socket. It is
// the whole of `pmemfs mount`, `mkpool` and `fsck` but for their command lines.
//
// # Order of a mount
//
//  1. Open and lock the local pool. Refuse a replica that was never promoted, an Inconsistent copy, one without a valid super
//     slot, and a mount point that is not fit.
//  2. Connect to every target of the pool set and compare states (HELLO changes nothing). Refuse if one has been promoted.
//  3. Persist term+1.
//  4. Recover the volume.
//  5. Claim each target at the new term: it breaks older connections and persists (term, writer) before it grants access. One that refuses
//     keeps the term that it has.
//  6. If a target is not known to be equal (docs/decisions/0003), flip the root locally. Persist locally the generation, the peers, and that
//     the copy is not Clean any more.
//  7. Each target in turn: a full copy of the shared area if it needs one, then persist generation and peers there. From here on
//     every drain goes to it.
//  8. Make super slots and log present in memory, mount, open the control socket, report success.
//
// A crash between any two steps leaves copies that the next mount handles: terms only grow, and a target in the middle of a copy
// is marked Inconsistent.
//
// A mount with ro does none of this but to open the pool, privately, and to mount: see startReadOnly.
//
// # Growth
//
// While mounted: 1 each target in turn, then 2 the local copy, get the size that their pool set files name by now; 3 the super with the size
// is sealed on every copy, and only then is the space used. What is registered for it with the devices is tested before 2 at the targets, and before 3
// here. Until 3 nothing has changed for the file system.
//
// # Order of an unmount
//
// The kernel has let go of the mount; then 1 commit and flip the root, 2 mark each target Clean, 3 mark the local copy Clean, 4 close.
// Only copies that are all marked are taken as equal by the next mount.
package initiator
