package layout

import "encoding/binary"

// Kinds of operations in the body of a record.
const (
	OpPut     = 1
	OpDelete  = 2
	OpPatch   = 3
	OpNextIno = 4
	OpInodes  = 5
)

const (
	keySize   = 16
	opKeyed   = 1 + keySize
	opNumeric = 1 + 8
)

// Op is one operation. Val is the value of a put or the bytes of a patch and points into the body; Off is where in the
// value a patch goes. Num is the number of the last two kinds; a next inode number is its bit pattern.
type Op struct {
	Kind uint8
	Key  Key
	Off  uint16
	Val  []byte
	Num  int64
}

func appendKeyed(dst []byte, kind uint8, k Key) []byte {
	dst = append(dst, kind)
	dst = binary.LittleEndian.AppendUint64(dst, k.Hi)
	return binary.LittleEndian.AppendUint64(dst, k.Lo)
}

// AppendPut appends a put of v, which has at most 65535 bytes.
func AppendPut(dst []byte, k Key, v []byte) []byte {
	dst = appendKeyed(dst, OpPut, k)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(v)))
	return append(dst, v...)
}

// AppendDelete appends a deletion.
func AppendDelete(dst []byte, k Key) []byte { return appendKeyed(dst, OpDelete, k) }

// AppendPatch appends a patch: b, of at most 65535 bytes, replaces the bytes of the value from off on.
func AppendPatch(dst []byte, k Key, off uint16, b []byte) []byte {
	dst = appendKeyed(dst, OpPatch, k)
	dst = binary.LittleEndian.AppendUint16(dst, off)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(b)))
	return append(dst, b...)
}

// AppendNextIno appends the next inode number.
func AppendNextIno(dst []byte, ino uint64) []byte {
	return binary.LittleEndian.AppendUint64(append(dst, OpNextIno), ino)
}

// AppendInodes appends a change of the number of inodes.
func AppendInodes(dst []byte, change int64) []byte {
	return binary.LittleEndian.AppendUint64(append(dst, OpInodes), uint64(change))
}

// EachOp calls fn for each operation of a body. It ends with the first error of fn, or with ErrCorrupt at bytes that are
// no operation.
func EachOp(body []byte, fn func(Op) error) error {
	for rest := body; len(rest) > 0; {
		op, next, ok := cutOp(rest)
		if !ok {
			at := len(body) - len(rest)
			return corrupt("operation at byte %d of a body of %d: found kind %d, unknown or not whole, expected kinds 1 to 5", at, len(body), rest[0])
		}
		if err := fn(op); err != nil {
			return err
		}
		rest = next
	}
	return nil
}

// cutOp splits the first operation off b, which is not empty.
func cutOp(b []byte) (op Op, rest []byte, ok bool) {
	op.Kind = b[0]
	fixed := opSize(op.Kind)
	if fixed == 0 || len(b) < fixed {
		return Op{}, b, false
	}
	le := binary.LittleEndian
	if op.Kind == OpNextIno || op.Kind == OpInodes {
		op.Num = int64(le.Uint64(b[1:]))
		return op, b[fixed:], true
	}
	op.Key = Key{le.Uint64(b[1:]), le.Uint64(b[9:])}
	if op.Kind == OpDelete {
		return op, b[fixed:], true
	}
	if op.Kind == OpPatch {
		op.Off = le.Uint16(b[opKeyed:])
	}
	end := fixed + int(le.Uint16(b[fixed-2:]))
	if end > len(b) {
		return Op{}, b, false
	}
	op.Val = b[fixed:end]
	return op, b[end:], true
}

// opSize is the size of the part of an operation before its variable bytes, 0 for an unknown kind.
func opSize(kind uint8) int {
	switch kind {
	case OpPut:
		return opKeyed + 2
	case OpDelete:
		return opKeyed
	case OpPatch:
		return opKeyed + 4
	case OpNextIno, OpInodes:
		return opNumeric
	}
	return 0
}
