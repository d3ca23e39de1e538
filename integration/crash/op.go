package crash

import (
	"fmt"
	"strings"
)

// Kind of an operation.
type Kind uint8

const (
	Create Kind = iota
	Mkdir
	Write // Off, Len
	Truncate
	Fallocate // Off, Len
	Prealloc  // Off, Len: the size stays
	Punch     // Off, Len: a hole
	Zero      // Off, Len
	Unlink    // also rmdir
	Rename
	Exchange
	Link
	Tmpfile // Len: a file without a name, written to and then linked
	Chmod
	Xattr // Len 0 removes it
	Hold  // open
	Forget
	Fsync
	Sync    // of everything
	Flip    // a checkpoint
	Settle  // as an unmount does
	Reclaim // one step
	Grow    // Len blocks more, as far as the copies have room
	Deliver // the fabric and the target go on, Len steps; 0 = until quiet

	// Ends of a life.

	PowerLoss // the initiator's machine; an image is chosen at random and mounted
	Restart   // the initiator's process; what its caches hold stays
	TargetLoss
	Promote // the initiator is dead or cut off, and the target takes over
	Unmount
	LinkLoss // the lane or the control connection breaks
	DiskLoss // the disk of one copy, an ordinary file, refuses to write

	kinds
)

var kindNames = [kinds]string{"create", "mkdir", "write", "truncate", "fallocate", "prealloc", "punch", "zero", "unlink", "rename", "exchange", "link", "tmpfile", "chmod", "xattr",
	"hold", "forget", "fsync", "sync", "flip", "settle", "reclaim", "grow", "deliver",
	"power-loss", "restart", "target-loss", "promote", "unmount", "link-loss", "disk-loss"}

func (k Kind) String() string { return kindNames[k] }

// Path is a name in one of the two directories: 0 is the root, 1 is /dir.
type Path struct{ Dir, Name uint8 }

func (p Path) name() string { return string(rune('a' + p.Name)) }

func (p Path) String() string { return []string{"/", "/dir/"}[p.Dir] + p.name() }

// Op is one operation of a workload.
type Op struct {
	Kind     Kind
	A, B     Path // B: where Rename and Link go
	Off, Len uint32
}

func (o Op) String() string {
	switch o.Kind {
	case Write, Fallocate, Prealloc, Punch, Zero:
		return fmt.Sprintf("%v(%v, %d+%d)", o.Kind, o.A, o.Off, o.Len)
	case Truncate, Xattr, Tmpfile:
		return fmt.Sprintf("%v(%v, %d)", o.Kind, o.A, o.Len)
	case Rename, Exchange, Link:
		return fmt.Sprintf("%v(%v, %v)", o.Kind, o.A, o.B)
	case Sync, Flip, Settle, Reclaim, PowerLoss, Restart, TargetLoss, Promote, Unmount, LinkLoss, DiskLoss:
		return o.Kind.String()
	case Deliver, Grow:
		return fmt.Sprintf("%v(%d)", o.Kind, o.Len)
	}
	return fmt.Sprintf("%v(%v)", o.Kind, o.A)
}

func list(ops []Op) string {
	s := make([]string, len(ops))
	for i, o := range ops {
		s[i] = o.String()
	}
	return strings.Join(s, " ")
}
