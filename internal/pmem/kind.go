package pmem

import "fmt"

// Kind is the kind of memory that a region maps, in the order in which it is harder for an RDMA device to register: Heap,
// DeviceDAX and Tmpfs can be pinned for as long as the device wants. FSDAX cannot, since the file system may move or free the blocks, so
// it needs on-demand paging. PageCacheFile must not be registered at all: the kernel writes its pages back, and replaces
// them, without asking the device.
type Kind uint8

const (
	Heap          Kind = iota + 1 // memory of this process alone
	DeviceDAX                     // /dev/daxX.Y
	Tmpfs                         // a file on a file system in memory: tmpfs, ramfs, hugetlbfs
	FSDAX                         // a file on a DAX file system
	PageCacheFile                 // any other file
)

func (k Kind) String() string {
	switch k {
	case Heap:
		return "memory of the process"
	case DeviceDAX:
		return "Device DAX"
	case Tmpfs:
		return "file in memory"
	case FSDAX:
		return "file on a DAX file system"
	case PageCacheFile:
		return "ordinary file"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}
