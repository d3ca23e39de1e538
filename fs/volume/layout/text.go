package layout

import (
	"fmt"
	"strings"
)

// KeyText is a key for people.
func KeyText(k Key) string {
	names := [...]string{TypeInode: "inode", TypeDirent: "name", TypeExtent: "extent", TypeXattr: "xattr", TypeSymlink: "symlink", TypeOrphan: "orphan"}
	if t := int(k.Type()); t > 0 && t < len(names) {
		return fmt.Sprintf("inode %d, %s %#x", k.Hi, names[t], k.Sub())
	}
	return fmt.Sprintf("key %#x:%#x", k.Hi, k.Lo)
}

// ValueText is the value of a key for people. Bytes that do not fit the format are said to be wrong, and shown.
func ValueText(k Key, val []byte) string {
	text, err := valueText(k, val)
	if err != nil {
		return fmt.Sprintf("%s%v: %x", text, err, val)
	}
	return strings.TrimSuffix(text, "; ")
}

func valueText(k Key, val []byte) (text string, err error) {
	switch k.Type() {
	case TypeInode:
		i, err := DecodeInode(val)
		return fmt.Sprintf("mode %#o nlink %d owner %d:%d rdev %#x flags %#x size %d blocks %d mtime %s ctime %s atime %s btime %s parent %d; ", i.Mode, i.Nlink, i.UID, i.GID,
			i.Rdev, i.Flags, i.Size, i.Blocks, timeText(i.Mtime), timeText(i.Ctime), timeText(i.Atime), timeText(i.Btime), i.Parent), err
	case TypeDirent:
		err := EachDirent(val, func(_ int, ino uint64, typ uint8, name []byte) bool {
			text += fmt.Sprintf("%q is inode %d of type %#o; ", name, ino, typ)
			return true
		})
		return text, err
	case TypeExtent:
		e, err := DecodeExtent(val)
		return fmt.Sprintf("blocks %d, %d of them, flags %d, birth %d; ", e.Pblk, e.N, e.Flags, e.Birth), err
	case TypeXattr:
		err := EachXattr(val, func(x Xattr) bool {
			text += fmt.Sprintf("%q form %d length %d data %x; ", x.Name, x.Form, x.Vlen, x.Data)
			return true
		})
		return text, err
	case TypeSymlink:
		return fmt.Sprintf("%q", val), nil
	}
	return fmt.Sprintf("%x", val), nil
}

func timeText(t Time) string { return fmt.Sprintf("%d.%09d", t.Sec, t.Nsec) }
