package layout

import "encoding/binary"

// A list of directory entries is the value of a DIRENT key: all names with one hash, ordered by name. An entry is
// {ino u64, mode_type u8, n u8, name of n bytes}; mode_type is the type part of the mode, mode >> 12.

// DirentHeader is the size of an entry without its name.
const DirentHeader = 10

type dirent struct {
	ino  uint64
	typ  uint8
	name []byte
}

// cutDirent splits the first entry off list.
func cutDirent(list []byte) (e dirent, rest []byte, ok bool) {
	if len(list) < DirentHeader {
		return dirent{}, list, false
	}
	end := DirentHeader + int(list[9])
	if end == DirentHeader || end > len(list) {
		return dirent{}, list, false
	}
	return dirent{binary.LittleEndian.Uint64(list), list[8], list[DirentHeader:end]}, list[end:], true
}

func appendDirent(dst []byte, ino uint64, typ uint8, name string) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, ino)
	dst = append(dst, typ, uint8(len(name)))
	return append(dst, name...)
}

// seekDirent finds the place of name: list[at:end] is its entry if ok, else at == end is where it belongs. It stops at
// an entry that is no entry.
func seekDirent(list []byte, name string) (e dirent, index, at, end int, ok bool) {
	rest := list
	for {
		at = len(list) - len(rest)
		e, next, whole := cutDirent(rest)
		if !whole || string(e.name) > name {
			return dirent{}, index, at, at, false
		}
		if string(e.name) == name {
			return e, index, at, len(list) - len(next), true
		}
		rest = next
		index++
	}
}

// FindDirent looks for name. Index counts entries from 0.
func FindDirent(list []byte, name string) (ino uint64, typ uint8, index int, ok bool) {
	e, index, _, _, ok := seekDirent(list, name)
	return e.ino, e.typ, index, ok
}

// AddDirent appends to dst the list with an entry more. An entry of that name is replaced. Name has 1 to 255 bytes.
// Dst and list must not overlap.
func AddDirent(dst, list []byte, ino uint64, typ uint8, name string) []byte {
	_, _, at, end, _ := seekDirent(list, name)
	dst = append(dst, list[:at]...)
	dst = appendDirent(dst, ino, typ, name)
	return append(dst, list[end:]...)
}

// SetDirent appends to dst the list in which the entry of name has another inode and type. It is AddDirent under the
// name for a change.
func SetDirent(dst, list []byte, name string, ino uint64, typ uint8) []byte {
	return AddDirent(dst, list, ino, typ, name)
}

// RemoveDirent appends to dst the list without the entry of name.
func RemoveDirent(dst, list []byte, name string) []byte {
	_, _, at, end, _ := seekDirent(list, name)
	dst = append(dst, list[:at]...)
	return append(dst, list[end:]...)
}

// EachDirent calls fn for each entry in order until fn returns false. Name is valid only during the call. A list that is
// not whole entries in ascending order of their names is an error.
func EachDirent(list []byte, fn func(index int, ino uint64, typ uint8, name []byte) bool) error {
	var last []byte
	for index, rest := 0, list; len(rest) > 0; index++ {
		e, next, ok := cutDirent(rest)
		if !ok || string(e.name) <= string(last) {
			at := len(list) - len(rest)
			return corrupt("directory entry %d at byte %d of a list of %d: found one not whole or not in order, expected ascending names", index, at, len(list))
		}
		if !fn(index, e.ino, e.typ, e.name) {
			return nil
		}
		last, rest = e.name, next
	}
	return nil
}
