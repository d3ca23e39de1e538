package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// A store is a file changed through shared writable mappings, as a small LMDB with MDB_WRITEMAP: pages 0 and 1 are meta pages,
// the newer valid one counts, and no transaction touches a page that either of them names. A process holds flock(2) on the
// file during a transaction.
//
// A meta page: transaction u64; per logical page the number u32 and the CRC-32 u32 of the page that holds it; CRC-32 of all
// that. Little-endian.
const (
	pageSize     = 4096
	logicalPages = 32
	storePages   = 2 + 3*logicalPages
	metaSize     = 8 + 8*logicalPages
	changed      = 4 // logical pages per transaction
)

type meta struct {
	txn  uint64
	page [logicalPages]uint32
	sum  [logicalPages]uint32
}

func (m *meta) encode(b []byte) {
	binary.LittleEndian.PutUint64(b, m.txn)
	for i := range m.page {
		binary.LittleEndian.PutUint32(b[8+8*i:], m.page[i])
		binary.LittleEndian.PutUint32(b[12+8*i:], m.sum[i])
	}
	binary.LittleEndian.PutUint32(b[metaSize:], crc32.ChecksumIEEE(b[:metaSize]))
}

// decodeMeta returns false for a page that is no valid meta page.
func decodeMeta(b []byte) (m meta, ok bool) {
	m.txn = binary.LittleEndian.Uint64(b)
	for i := range m.page {
		m.page[i] = binary.LittleEndian.Uint32(b[8+8*i:])
		m.sum[i] = binary.LittleEndian.Uint32(b[12+8*i:])
		if m.page[i] >= storePages {
			return m, false
		}
	}
	return m, m.txn > 0 && binary.LittleEndian.Uint32(b[metaSize:]) == crc32.ChecksumIEEE(b[:metaSize])
}

// openStore maps a store, which it makes if there is none.
func openStore(path string) (*os.File, []byte, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, nil, err
	}
	if err := f.Truncate(storePages * pageSize); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	m, err := unix.Mmap(int(f.Fd()), 0, storePages*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("mmap %s: %w", path, err), f.Close())
	}
	return f, m, nil
}

// metas reads both meta pages, the newer one first; a fresh store has none, which is transaction 0.
func metas(mem []byte) (newer, older meta) {
	newer, ok := decodeMeta(mem)
	if !ok {
		newer = meta{}
	}
	if older, ok = decodeMeta(mem[pageSize:]); !ok {
		older = meta{}
	}
	if older.txn > newer.txn {
		newer, older = older, newer
	}
	return newer, older
}

func pageOf(mem []byte, n uint32) []byte { return mem[n*pageSize:][:pageSize] }

// verify checks every page that a meta page names.
func verify(mem []byte, m *meta) error {
	for i, n := range m.page {
		if n != 0 && crc32.ChecksumIEEE(pageOf(mem, n)) != m.sum[i] {
			return fmt.Errorf("transaction %d: logical page %d, which is page %d, has a wrong checksum", m.txn, i, n)
		}
	}
	return nil
}

// commitLoop runs transactions until one fails, and notes each in acked; it is meant to be ended from outside.
func commitLoop(path, acked string) error {
	f, mem, err := openStore(path)
	if err != nil {
		return err
	}
	defer f.Close()
	log, err := os.OpenFile(acked, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	seen := uint64(0)
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			return fmt.Errorf("flock: %w", err)
		}
		txn, err := transaction(mem, seen)
		if err != nil {
			return err
		}
		seen = txn
		if _, err := fmt.Fprintln(log, txn); err != nil {
			return err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
			return fmt.Errorf("unlock: %w", err)
		}
	}
}

// transaction commits one more transaction and returns its number. seen is the last one that this process knows of. When the
// file system dies, so does the memory; that is an error like others.
func transaction(mem []byte, seen uint64) (txn uint64, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("store through the mapping: %v", p)
		}
	}()
	m, old := metas(mem)
	if m.txn < seen {
		return 0, fmt.Errorf("transaction %d was there, and now the newest is %d", seen, m.txn)
	}
	if err := verify(mem, &m); err != nil {
		return 0, err
	}
	used := [storePages]bool{true, true}
	for i := range m.page {
		used[m.page[i]], used[old.page[i]] = true, true
	}
	m.txn++
	free := uint32(0)
	for k := range uint64(changed) {
		for used[free] {
			free++
		}
		used[free] = true
		i := (m.txn*changed + k) % logicalPages
		b := pageOf(mem, free)
		for at := 0; at < pageSize; at += 8 {
			binary.LittleEndian.PutUint64(b[at:], m.txn<<16|uint64(at))
		}
		m.page[i], m.sum[i] = free, crc32.ChecksumIEEE(b)
	}
	if err := unix.Msync(mem, unix.MS_SYNC); err != nil {
		return 0, fmt.Errorf("msync of the pages of transaction %d: %w", m.txn, err)
	}
	slot := mem[m.txn%2*pageSize:][:pageSize]
	m.encode(slot)
	if err := unix.Msync(slot, unix.MS_SYNC); err != nil {
		return 0, fmt.Errorf("msync of transaction %d: %w", m.txn, err)
	}
	return m.txn, nil
}

// checkStore demands the last transaction that any of the files acked, a list with commas, names.
func checkStore(path, acked string) error {
	last := uint64(0)
	for name := range strings.SplitSeq(acked, ",") {
		n, err := lastAcked(name)
		if err != nil {
			return err
		}
		last = max(last, n)
	}
	f, mem, err := openStore(path)
	if err != nil {
		return err
	}
	defer f.Close()
	m, _ := metas(mem)
	if m.txn < last {
		return fmt.Errorf("transaction %d was acknowledged, the newest one that is there is %d", last, m.txn)
	}
	fmt.Printf("%d transactions acknowledged, %d are there\n", last, m.txn)
	return verify(mem, &m)
}
