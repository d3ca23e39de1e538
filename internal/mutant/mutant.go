// Package mutant names deliberate faults that stand in the real code at the real place, each a line long. They prove that the crash
// simulation (integration/crash) can see such a fault.
//
// In an ordinary build On is the constant false, and the compiler removes the fault. In a build with the tag mutants, which only
// `make mutants` makes, one of them can be switched on.
package mutant

// Name of a fault. The value says what is wrong.
type Name string

// The commit primitive (internal/pmem). Both sides use it, so each must be seen on the local copy and on a target.
const (
	NoDataFlush  Name = "data are not flushed before the seal"
	NoDataFence  Name = "no fence between data and seal"
	NoSealFlush  Name = "the seal is not flushed"
	NoSealFence  Name = "no fence after the seal"
	SealWithData Name = "the seal is stored together with the data"
	SyncRetried  Name = "after a failed msync another one is believed"
)

// The volume.
const (
	SealInRange      Name = "the seal word lies inside a pushed range"
	EarlyReuse       Name = "freed blocks are used again before the group that freed them is sealed"
	NodesEarly       Name = "replaced nodes are used again one flip early"
	LogEarly         Name = "log space is used again before the super is sealed"
	RootBeforeNodes  Name = "the root is sealed before its nodes are durable"
	TreeInPlace      Name = "nodes of a durable tree are edited in place"
	ContentAtWrite   Name = "content is logged at the write, before its data are in the group"
	SizeBeforeData   Name = "a group has size and extents without the data"
	OrphanForgotten  Name = "orphans are not found by recovery"
	OnePassReplay    Name = "replay allocates before it has marked what the records map"
	FreesForgotten   Name = "deferred frees are forgotten at a restart"
	UnflushedSeals   Name = "recovery believes seals that were never flushed"
	FsyncSeesNothing Name = "an fsync ignores a group that is under way"
	GrowEarly        Name = "new space is used before the super that has it is durable on every copy"
	OldSnapshot      Name = "a snapshot of the allocator that is older than the super is believed"
	ShortLate        Name = "a truncation finds that there is no room after it has set the size"
	ZeroTorn         Name = "a range that is zeroed without room leaves a part of a block"
	RenameNotWhole   Name = "a rename over a file does not take the content of its source along"
)

// The methods of persistency without a CPU of the target.
const (
	APMNoFence    Name = "APM: the seal is not fenced"
	APMNoRead     Name = "APM: the seal is written before a READ has proven the ranges"
	APMNoLastRead Name = "APM: a drain ends before a READ has proven the seal"
	APMCaching    Name = "APM is accepted where inbound bytes stay in a cache that is lost"
	FlushVisible  Name = "FLUSH: the type is visible instead of persistent"
	FlushEarly    Name = "FLUSH: the seal is stored before the FLUSH of the ranges has completed"
	FlushNoSeal   Name = "FLUSH: the seal is not flushed"
	Overlap       Name = "two drains that write the same bytes are under way on a device that does not place in order"
)

// The pipeline, the pool header, and the two ends of a lane.
const (
	SuperAhead      Name = "a super goes to a target before its group is sealed on the local copy"
	AckBeforeTarget Name = "an fsync is acknowledged before the target has answered"
	TargetSealFirst Name = "the target stores the seal before it flushes the ranges"
	StagedLate      Name = "the target copies staged bytes into the pool after it has flushed the ranges"
	BounceReused    Name = "bounce buffers are used again before the target has answered"
	NoInconsistent  Name = "no Inconsistent mark during a full copy"
	AnyTerm         Name = "the target does not compare terms"
	NoFencing       Name = "a new claim and a promotion leave the old session alone"
	StateInPlace    Name = "the current state slot is overwritten"
	UnflushedOpen   Name = "what an earlier process stored is not flushed when a pool is opened"
)
