package volume

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/pmemfs/pmemfs/fs/volume/layout"
)

// damage is one way to spoil a specimen.
type damage struct {
	name  string
	spoil func(b []byte) []byte
	// blind: the checksums are right again, so that the damage may pass for another healthy pool. Otherwise it must be
	// noticed or change nothing that can be seen.
	blind bool
	// last: it is in the last record of the log.
	last bool
}

// field is a number in a structure.
type field struct {
	name     string
	off, len uint64 // in the pool
}

func (f field) get(b []byte) uint64 {
	var w [8]byte
	copy(w[:], b[f.off:f.off+f.len])
	return binary.LittleEndian.Uint64(w[:])
}

func (f field) put(b []byte, val uint64) {
	var w [8]byte
	binary.LittleEndian.PutUint64(w[:], val)
	copy(b[f.off:f.off+f.len], w[:])
}

// wrong are the values that each field gets: extremes, off by one, not aligned, outside of the pool, and pointing at
// itself or at what is not its own.
func (s *specimen) wrong(f field) []uint64 {
	is := f.get(s.image)
	return []uint64{
		0, ^uint64(0), 1 << (8*f.len - 1), is + 1, is - 1, is + 7, is * 2, is ^ 1<<(4*f.len),
		f.off, f.off / layout.BlockSize, s.super.Root, s.super.LogOff, MinPool, MinPool / layout.BlockSize, MinPool - layout.BlockSize,
	}
}

// spoilField makes the cases of one field with the checksums that fix makes right, and two as they are.
func (s *specimen) spoilField(f field, fix func(b []byte)) (all []damage) {
	seen := map[uint64]bool{f.get(s.image): true}
	for i, val := range s.wrong(f) {
		val &= ^uint64(0) >> (64 - 8*f.len)
		if seen[val] {
			continue
		}
		seen[val] = true
		plain := func(b []byte) []byte { f.put(b, val); return b }
		if i < 2 {
			all = append(all, damage{name: fmt.Sprintf("%s = %#x", f.name, val), spoil: plain})
		}
		all = append(all, damage{name: fmt.Sprintf("%s = %#x, checksum right", f.name, val), blind: true, spoil: func(b []byte) []byte {
			plain(b)
			fix(b)
			return b
		}})
	}
	return all
}

func flip(name string, off uint64, mask byte) damage {
	return damage{name: fmt.Sprintf("%s, byte %#x ^ %#x", name, off, mask), spoil: func(b []byte) []byte { b[off] ^= mask; return b }}
}

// supers: each byte of both slots, each field of both, and of both at once.
func (s *specimen) supers() (all []damage) {
	fields := []field{
		{"seal", 0, 8}, {"magic", 8, 8}, {"version", 16, 4}, {"checksum kind", 20, 4}, {"pool_uuid", 24, 8}, {"pool_size", 40, 8},
		{"epoch", 48, 8}, {"term", 56, 8}, {"root", 64, 8}, {"root_birth", 72, 8}, {"height", 80, 4}, {"node_size", 84, 4},
		{"lsn", 88, 8}, {"lsn_seal", 96, 8}, {"log_pos", 104, 8}, {"log_off", 112, 8}, {"log_len", 120, 8}, {"bitmap_off", 128, 8},
		{"bitmap_len", 136, 8}, {"first_block", 144, 8}, {"chunk", 152, 4}, {"reserve", 156, 4}, {"next_ino", 160, 8},
		{"inodes", 168, 8}, {"hash_key", 176, 8}, {"reserved", 192, 8},
	}
	for _, off := range SealWords() {
		for i := range uint64(layout.SuperEnd) {
			all = append(all, flip("super slot", off+i, 0x10))
		}
		for i := uint64(layout.SuperEnd); i < layout.BlockSize; i += 509 {
			all = append(all, flip("rest of super slot", off+i, 0xff))
		}
		other := layout.SuperOff0 + layout.SuperOff1 - off
		for _, f := range fields {
			f.off += off
			f.name = fmt.Sprintf("super slot at %d: %s", off, f.name)
			cases := s.spoilField(f, func(b []byte) {
				if f.off != off {
					resealSuper(b, off)
				}
			})
			all = append(all, cases...)
			for _, d := range cases {
				alone := damage{name: d.name + ", alone", blind: d.blind, spoil: func(b []byte) []byte {
					clear(b[other : other+layout.BlockSize])
					return d.spoil(b)
				}}
				all = append(all, alone)
			}
		}
	}
	return all
}

// truncations: in the middle of each area, at their borders, and a byte less.
func (s *specimen) truncations() (all []damage) {
	sup := s.super
	for _, n := range []uint64{
		0, 1, 511, 4095, 4096, layout.SuperOff0 + 256, layout.SuperOff1, layout.SuperOff1 + 100, layout.LogOff, layout.LogOff + 1,
		sup.LogOff + sup.LogLen/2, sup.BitmapOff, sup.BitmapOff + sup.BitmapLen/2, sup.FirstBlock * layout.BlockSize,
		sup.FirstBlock*layout.BlockSize + 100, sup.Root, sup.Root + 100, MinPool / 2, MinPool - layout.BlockSize, MinPool - 1,
	} {
		all = append(all, damage{name: fmt.Sprintf("cut to %d bytes", n), spoil: func(b []byte) []byte { return b[:n] }})
	}
	return all
}

// trees: each byte of the root and of a few others, each field of headers, slots and values of every kind, and pointers
// that make the tree no tree. Many nodes are alike: of each field so many are taken, at random.
func (s *specimen) trees(rnd *rand.Rand, each int) (all []damage) {
	for _, at := range []int{0, 1, len(s.nodes) / 2, len(s.nodes) - 1} {
		for i := range uint64(specimenNode) {
			all = append(all, flip("node", s.nodes[at]+i, 1<<(i%8)))
		}
	}
	byKind := make(map[string][]func() []damage)
	var kinds []string
	for _, off := range s.nodes {
		for _, f := range s.nodeFields(off) {
			if byKind[f.name] == nil {
				kinds = append(kinds, f.name)
			}
			byKind[f.name] = append(byKind[f.name], func() []damage {
				f.name = fmt.Sprintf("node at %d: %s at %d", off, f.name, f.off)
				return s.spoilField(f, func(b []byte) { resealNode(b, off) })
			})
		}
	}
	for _, kind := range kinds {
		for range each {
			all = append(all, byKind[kind][rnd.IntN(len(byKind[kind]))]()...)
		}
	}
	return append(all, s.knots()...)
}

// nodeFields are the fields of one node. Fields of the same kind have the same name.
func (s *specimen) nodeFields(off uint64) []field {
	nd := s.image[off:][:specimenNode]
	kind := "leaf"
	if nd[24] > 0 {
		kind = "inner node"
	}
	fields := []field{
		{kind + " magic", off, 4}, {kind + " birth", off + 8, 8}, {kind + " self", off + 16, 8}, {kind + " level", off + 24, 2},
		{kind + " n", off + 26, 2}, {kind + " low", off + 28, 2}, {kind + " dead", off + 30, 2}, {kind + " reserved", off + 32, 8},
	}
	for i := range int(binary.LittleEndian.Uint16(nd[26:])) {
		slot := off + 64 + 24*uint64(i)
		key := layout.Key{Hi: binary.LittleEndian.Uint64(nd[64+24*i:]), Lo: binary.LittleEndian.Uint64(nd[64+24*i+8:])}
		val := place{off + uint64(binary.LittleEndian.Uint16(nd[64+24*i+16:])), uint64(binary.LittleEndian.Uint16(nd[64+24*i+18:]))}
		what := kind
		if nd[24] == 0 {
			what = fmt.Sprintf("type %d", key.Type())
			fields = append(fields, valueFields(what, key, val)...)
		} else {
			fields = append(fields, field{"child", val.off, 8}, field{"child birth", val.off + 8, 8})
		}
		fields = append(fields, field{what + " hi", slot, 8}, field{what + " sub", slot + 8, 7}, field{what + " type", slot + 15, 1},
			field{what + " off", slot + 16, 2}, field{what + " len", slot + 18, 2}, field{what + " slot reserved", slot + 20, 4})
	}
	return fields
}

// valueFields are those of the first entry of a value.
func valueFields(what string, k layout.Key, val place) (fields []field) {
	type part = struct {
		name     string
		off, len uint64
	}
	parts := map[uint8][]part{
		layout.TypeInode: {
			{"mode", 0, 4}, {"nlink", 4, 4}, {"uid", 8, 4}, {"gid", 12, 4}, {"rdev", 16, 4}, {"flags", 20, 4}, {"size", 24, 8}, {"blocks", 32, 8},
			{"mtime", 40, 8}, {"mtime nsec", 48, 4}, {"ctime nsec", 60, 4}, {"atime nsec", 72, 4}, {"btime nsec", 84, 4}, {"parent", 88, 8},
			{"reserved", 96, 8},
		},
		layout.TypeDirent:  {{"ino", 0, 8}, {"mode_type", 8, 1}, {"n", 9, 1}, {"name", 10, 1}},
		layout.TypeExtent:  {{"pblk", 0, 8}, {"n", 8, 4}, {"flags", 12, 4}, {"birth", 16, 8}},
		layout.TypeXattr:   {{"n", 0, 1}, {"form", 1, 1}, {"vlen", 2, 4}, {"name", 6, 1}, {"end of data", val.len - 4, 4}, {"data", val.len - 12, 8}},
		layout.TypeSymlink: {{"target", 0, 1}},
		layout.TypeOrphan:  {{"block", 0, 8}},
	}
	for _, p := range parts[k.Type()] {
		fields = append(fields, field{what + " " + p.name, val.off + p.off, p.len})
	}
	return fields
}

// knots: inner nodes that point to themselves, to their parent, to a node that another one has, or twice to one.
func (s *specimen) knots() (all []damage) {
	for _, from := range s.nodes {
		nd := s.image[from:][:specimenNode]
		if nd[24] == 0 {
			continue
		}
		n := int(binary.LittleEndian.Uint16(nd[26:]))
		for _, to := range []uint64{from, s.super.Root, s.nodes[1], s.nodes[2], s.nodes[len(s.nodes)-1]} {
			for _, i := range []int{0, n - 1} {
				all = append(all, damage{name: fmt.Sprintf("node at %d: child %d is the node at %d", from, i, to), blind: true, spoil: func(b []byte) []byte {
					at := from + uint64(binary.LittleEndian.Uint16(nd[64+24*i+16:]))
					binary.LittleEndian.PutUint64(b[at:], to)
					copy(b[at+8:at+16], b[to+8:to+16]) // its birth
					resealNode(b, from)
					return b
				}})
			}
		}
	}
	return all
}

// logs: each byte of the records, each field of their headers and operations, and records cut short or exchanged.
func (s *specimen) logs() (all []damage) {
	fix := func(b []byte) { s.resealLog(b) }
	for i, r := range s.records {
		first := len(all)
		for at := r.off; at < r.off+r.len; at += 1 + r.len/128 {
			all = append(all, flip(fmt.Sprintf("record %d", i), at, 1<<(at%8)))
		}
		for _, f := range []field{
			{"seal", 0, 8}, {"lsn", 8, 8}, {"term", 16, 8}, {"len", 24, 4}, {"n", 28, 4}, {"prev_seal", 32, 8}, {"time", 40, 8}, {"reserved", 48, 8},
		} {
			f.off += r.off
			f.name = fmt.Sprintf("record %d: %s", i, f.name)
			all = append(all, s.spoilField(f, fix)...)
		}
		for _, f := range s.opFields(i, r) {
			all = append(all, s.spoilField(f, fix)...)
		}
		for j := range all[first:] {
			all[first+j].last = i == len(s.records)-1
		}
	}
	return all
}

// opFields are the fields of the operations in the body of a record.
func (s *specimen) opFields(i int, r place) (fields []field) {
	for at := r.off + layout.RecordHeader; at < r.off+r.len; {
		name := fmt.Sprintf("record %d, op at %d: ", i, at)
		fields = append(fields, field{name + "kind", at, 1})
		kind := s.image[at]
		if kind == layout.OpNextIno || kind == layout.OpInodes {
			fields = append(fields, field{name + "number", at + 1, 8})
			at += 9
			continue
		}
		key := layout.Key{Hi: binary.LittleEndian.Uint64(s.image[at+1:]), Lo: binary.LittleEndian.Uint64(s.image[at+9:])}
		fields = append(fields, field{name + "hi", at + 1, 8}, field{name + "sub", at + 9, 7}, field{name + "type", at + 16, 1})
		switch kind {
		case layout.OpPut:
			n := uint64(binary.LittleEndian.Uint16(s.image[at+17:]))
			fields = append(fields, field{name + "n", at + 17, 2})
			fields = append(fields, valueFields(name, key, place{at + 19, n})...)
			at += 19 + n
		case layout.OpPatch:
			n := uint64(binary.LittleEndian.Uint16(s.image[at+19:]))
			fields = append(fields, field{name + "offset", at + 17, 2}, field{name + "n", at + 19, 2}, field{name + "bytes", at + 21, min(n, 8)})
			at += 21 + n
		default:
			at += 17
		}
	}
	return fields
}
