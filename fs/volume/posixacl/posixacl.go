package posixacl

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Names of the extended attributes.
const (
	Access  = "system.posix_acl_access"
	Default = "system.posix_acl_default"
)

const (
	version    = 2
	headerSize = 4
	entrySize  = 8
	// MaxSize is the longest encoded list in bytes: Linux passes one page at most to a FUSE server.
	MaxSize = 4096
)

// Tag says whom an entry is about.
type Tag uint16

// Tags, in the order in which entries stand.
const (
	UserObj  Tag = 1    // the owner
	User     Tag = 2    // the user with the entry's id
	GroupObj Tag = 4    // the group of the file
	Group    Tag = 8    // the group with the entry's id
	Mask     Tag = 0x10 // bounds User, GroupObj and Group
	Other    Tag = 0x20
)

// noID is the id of entries that name nobody.
const noID = 0xffffffff

// Entry grants some of the three permission bits rwx.
type Entry struct {
	Tag  Tag
	Perm uint16
	ID   uint32
}

// ACL is a valid list.
type ACL []Entry

// ErrInvalid is wrapped by every error of Decode.
var ErrInvalid = errors.New("invalid access control list")

// Decode reads a list and checks it.
func Decode(b []byte) (ACL, error) {
	if len(b) > MaxSize || len(b) < headerSize || (len(b)-headerSize)%entrySize != 0 {
		return nil, fmt.Errorf("%w: found %d bytes", ErrInvalid, len(b))
	}
	if v := binary.LittleEndian.Uint32(b); v != version {
		return nil, fmt.Errorf("%w: found version %d, expected %d", ErrInvalid, v, version)
	}
	acl := make(ACL, 0, (len(b)-headerSize)/entrySize)
	for b = b[headerSize:]; len(b) > 0; b = b[entrySize:] {
		acl = append(acl, Entry{
			Tag:  Tag(binary.LittleEndian.Uint16(b)),
			Perm: binary.LittleEndian.Uint16(b[2:]),
			ID:   binary.LittleEndian.Uint32(b[4:]),
		})
	}
	return acl, acl.check()
}

// check wants the entries in order, each of the three base entries once, and a mask where one is needed.
func (acl ACL) check() error {
	var seen Tag
	for i, e := range acl {
		switch e.Tag {
		case UserObj, GroupObj, Mask, Other:
			if seen >= e.Tag {
				return fmt.Errorf("%w: entry %d has tag %#x after tag %#x", ErrInvalid, i, e.Tag, seen)
			}
		case User, Group:
			if seen >= e.Tag<<1 || e.ID == noID {
				return fmt.Errorf("%w: entry %d has tag %#x and id %d after tag %#x", ErrInvalid, i, e.Tag, int32(e.ID), seen)
			}
		default:
			return fmt.Errorf("%w: entry %d has tag %#x", ErrInvalid, i, e.Tag)
		}
		if e.Perm > 7 {
			return fmt.Errorf("%w: entry %d has permissions %#o", ErrInvalid, i, e.Perm)
		}
		seen |= e.Tag
	}
	need := UserObj | GroupObj | Other
	if seen&(User|Group) != 0 {
		need |= Mask
	}
	if missing := need &^ seen; missing != 0 {
		return fmt.Errorf("%w: entries with tags %#x are missing", ErrInvalid, missing)
	}
	return nil
}

// Append appends the encoded list to dst.
func (acl ACL) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, version)
	for _, e := range acl {
		dst = binary.LittleEndian.AppendUint16(dst, uint16(e.Tag))
		dst = binary.LittleEndian.AppendUint16(dst, e.Perm)
		dst = binary.LittleEndian.AppendUint32(dst, e.ID)
	}
	return dst
}

// classes are the three entries that the permission bits of a mode stand for: the mask, not the group of the file, where
// there is one.
func (acl ACL) classes() (owner, group, other *Entry) {
	for i := range acl {
		switch e := &acl[i]; e.Tag {
		case UserObj:
			owner = e
		case GroupObj, Mask:
			group = e
		case Other:
			other = e
		}
	}
	return owner, group, other
}

// Minimal tells whether the list says no more than a mode does.
func (acl ACL) Minimal() bool { return len(acl) == 3 }

// Mode is mode with the permission bits that the list, set as an access ACL, gives it.
func (acl ACL) Mode(mode uint32) uint32 {
	owner, group, other := acl.classes()
	return mode&^0777 | uint32(owner.Perm)<<6 | uint32(group.Perm)<<3 | uint32(other.Perm)
}

// Chmod changes the list to what it is after a chmod to mode.
func (acl ACL) Chmod(mode uint32) {
	owner, group, other := acl.classes()
	owner.Perm, group.Perm, other.Perm = uint16(mode>>6&7), uint16(mode>>3&7), uint16(mode&7)
}

// Create changes a default ACL to the access ACL of an object that is created with mode, and returns the mode it gets: the
// permissions that both the list and mode grant. The umask has no say.
func (acl ACL) Create(mode uint32) uint32 {
	owner, group, other := acl.classes()
	owner.Perm &= uint16(mode >> 6 & 7)
	group.Perm &= uint16(mode >> 3 & 7)
	other.Perm &= uint16(mode & 7)
	return acl.Mode(mode)
}
