package volume

import (
	"sync"
	"syscall"

	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Volume is an open file system.
type Volume struct{ mu sync.RWMutex }

// Finding is one inconsistency that Check met.
type Finding struct{ Where, What string }

func Format(r pmem.Region, p Params) error { return syscall.ENOSYS }
func Open(r pmem.Region, o Options) (*Volume, Recovered, error) {
	return nil, Recovered{}, syscall.ENOSYS
}
func Probe(read func(off uint64, b []byte) error, uuid [16]byte, poolSize uint64) (Recovered, error) {
	return Recovered{}, syscall.ENOSYS
}
func SealWords(r pmem.Region) [2]uint64 { return [2]uint64{4096, 8192} }

func (v *Volume) Lookup(dir Ino, name string) (Attr, error)       { return Attr{}, syscall.ENOSYS }
func (v *Volume) GetAttr(ino Ino) (Attr, error)                   { return Attr{}, syscall.ENOSYS }
func (v *Volume) SetAttr(ino Ino, s SetAttr) (Attr, error)        { return Attr{}, syscall.ENOSYS }
func (v *Volume) Make(dir Ino, name string, m Make) (Attr, error) { return Attr{}, syscall.ENOSYS }
func (v *Volume) Link(ino, dir Ino, name string) (Attr, error)    { return Attr{}, syscall.ENOSYS }
func (v *Volume) Unlink(dir Ino, name string) error               { return syscall.ENOSYS }
func (v *Volume) Rmdir(dir Ino, name string) error                { return syscall.ENOSYS }
func (v *Volume) Rename(dir Ino, name string, newdir Ino, newname string, flags uint32) error {
	return syscall.ENOSYS
}
func (v *Volume) Readlink(ino Ino) (string, error) { return "", syscall.ENOSYS }
func (v *Volume) ReadDir(dir Ino, cookie uint64, fn func(DirEnt) bool) error {
	return syscall.ENOSYS
}
func (v *Volume) Read(ino Ino, off uint64, dst []byte) (int, error) { return 0, syscall.ENOSYS }
func (v *Volume) Write(ino Ino, off uint64, src []byte, killPriv bool) (int, error) {
	return 0, syscall.ENOSYS
}
func (v *Volume) Fallocate(ino Ino, off, n uint64) error { return syscall.ENOSYS }
func (v *Volume) GetXattr(ino Ino, name string, dst []byte) (int, error) {
	return 0, syscall.ENOSYS
}
func (v *Volume) SetXattr(ino Ino, name string, value []byte, flags uint32) error {
	return syscall.ENOSYS
}
func (v *Volume) RemoveXattr(ino Ino, name string) error        { return syscall.ENOSYS }
func (v *Volume) ListXattr(ino Ino, dst []byte) (int, error)    { return 0, syscall.ENOSYS }
func (v *Volume) Hold(ino Ino)                                  {}
func (v *Volume) Forget(ino Ino, n uint64)                      {}
func (v *Volume) StatFS() Stat                                  { return Stat{} }
func (v *Volume) Dirty(ino Ino) bool                            { return false }
func (v *Volume) FlushFile(ino Ino) (lsn uint64, err error)     { return 0, syscall.ENOSYS }
func (v *Volume) FlushAll() (lsn uint64, err error)             { return 0, syscall.ENOSYS }
func (v *Volume) CloseGroup() (bool, error)                     { return false, syscall.ENOSYS }
func (v *Volume) CloseEpoch() (bool, error)                     { return false, syscall.ENOSYS }
func (v *Volume) NextJob() *Job                                 { return nil }
func (v *Volume) Sealed(j *Job)                                 {}
func (v *Volume) WantCheckpoint() bool                          { return false }
func (v *Volume) Reclaim() (more bool, err error)               { return false, syscall.ENOSYS }
func (v *Volume) Stop(cause error)                              {}
func (v *Volume) Stopped() error                                { return nil }
func (v *Volume) Check(report func(Finding)) error              { return syscall.ENOSYS }
func (v *Volume) LSN() uint64                                   { return 0 }
func (v *Volume) AllocatedRanges(fn func(pmem.Range))           {}
