package commit

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/pmem"
)

const testPool = 8 << 20

var testUUID = [16]byte{1, 2, 3}

// replica is a target in memory: it copies the ranges from the local pool and stores the seal, in a goroutine of its own.
type replica struct {
	local, own pmem.Region
	report     func(seq uint64, err error)
	jobs       chan job
	done       sync.WaitGroup

	mu    sync.Mutex // protects all below
	fail  error
	count int
}

type job struct {
	seq    uint64
	ranges []pmem.Range
	seal   pmem.Seal
}

func newReplica(t *testing.T, local pmem.Region) *replica {
	r := &replica{local: local, own: heap(t), jobs: make(chan job, 64)}
	copy(r.own.Bytes(), local.Bytes())
	r.done.Add(1)
	go r.run()
	t.Cleanup(func() { close(r.jobs); r.done.Wait() })
	return r
}

func (r *replica) run() {
	defer r.done.Done()
	for j := range r.jobs {
		r.mu.Lock()
		err := r.fail
		r.count++
		r.mu.Unlock()
		for _, x := range j.ranges {
			if err == nil {
				copy(r.own.Bytes()[x.Off:x.Off+x.Len], r.local.Bytes()[x.Off:x.Off+x.Len])
			}
		}
		if err == nil {
			err = pmem.Drain(r.own, j.ranges, j.seal)
		}
		r.report(j.seq, err)
	}
}

func (r *replica) Drain(seq uint64, ranges []pmem.Range, seal pmem.Seal) {
	r.jobs <- job{seq, ranges, seal}
}

// equal compares the copies while nothing is under way. The pool header, which is local to each, is not written here.
func (r *replica) equal() bool { return bytes.Equal(r.own.Bytes(), r.local.Bytes()) }

func (r *replica) drains() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

func (r *replica) breakWith(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

func heap(t *testing.T) pmem.Region { return heapOf(t, testPool) }

func heapOf(t *testing.T, size uint64) pmem.Region {
	t.Helper()
	r := pmem.NewHeap(size)
	t.Cleanup(func() { r.Close() })
	return r
}

func testClock() volume.Time { return volume.Time{Sec: 1} }

// start makes a volume, a replica of it, and a committer of both.
func start(t *testing.T, interval time.Duration) (*volume.Volume, *replica, *Committer) {
	t.Helper()
	region := heap(t)
	if err := volume.Format(region, volume.Params{PoolUUID: testUUID}); err != nil {
		t.Fatal(err)
	}
	vol := open(t, region)
	r := newReplica(t, region)
	c := New(Config{Volume: vol, Region: region, Targets: []Copy{r}, Interval: interval})
	r.report = func(seq uint64, err error) { c.Drained(1, seq, err) }
	return vol, r, c
}

func open(t *testing.T, region pmem.Region) *volume.Volume {
	t.Helper()
	vol, _, err := volume.Open(region, volume.Options{PoolUUID: testUUID, Term: 1, Now: testClock})
	if err != nil {
		t.Fatal(err)
	}
	return vol
}

func create(t *testing.T, vol *volume.Volume, name string, content []byte) volume.Ino {
	t.Helper()
	a, err := vol.Make(volume.Root, name, volume.Make{Mode: syscall.S_IFREG | 0o644})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vol.Write(a.Ino, 0, content, false); err != nil {
		t.Fatal(err)
	}
	return a.Ino
}

// content reads the file name from what a region recovers to.
func content(t *testing.T, region pmem.Region, name string) []byte {
	t.Helper()
	vol := open(t, region)
	a, err := vol.Lookup(volume.Root, name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	b := make([]byte, a.Size)
	if _, err := vol.Read(a.Ino, 0, b); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestFsync_OneDrainOnTheTargetAndTheReplicaHasTheFile(t *testing.T) {
	vol, r, c := start(t, time.Hour)
	defer c.Close()
	ino := create(t, vol, "f", []byte("acknowledged"))
	if err := c.Fsync(ino, false); err != nil {
		t.Fatal(err)
	}
	if n := r.drains(); n != 1 {
		t.Fatalf("%d drains for create, write and fsync, want 1", n)
	}
	if got := content(t, r.own, "f"); string(got) != "acknowledged" {
		t.Fatalf("the replica recovers to %q", got)
	}
	if err := c.Fsync(ino, false); err != nil || r.drains() != 1 {
		t.Fatalf("fsync with nothing new: %v, %d drains", err, r.drains())
	}
}

func TestFsync_ConcurrentCallsShareDrains(t *testing.T) {
	vol, r, c := start(t, time.Hour)
	defer c.Close()
	const files, rounds = 16, 20
	inos := make([]volume.Ino, files)
	for i := range inos {
		inos[i] = create(t, vol, fmt.Sprint("f", i), []byte("x"))
	}
	var wg sync.WaitGroup
	for _, ino := range inos {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := range rounds {
				if _, err := vol.Write(ino, uint64(n), []byte("y"), false); err != nil {
					t.Error(err)
				}
				if err := c.Fsync(ino, false); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	if n := r.drains(); n > files*rounds {
		t.Fatalf("%d drains for %d fsyncs", n, files*rounds)
	}
	for i := range inos {
		if got := content(t, r.own, fmt.Sprint("f", i)); !bytes.Equal(got, bytes.Repeat([]byte("y"), rounds)) {
			t.Fatalf("file %d on the replica: %q", i, got)
		}
	}
}

func TestFsync_FailureIsStickyAndStopsTheVolume(t *testing.T) {
	vol, r, c := start(t, time.Hour)
	defer c.Close()
	ino := create(t, vol, "f", []byte("old"))
	if err := c.Fsync(ino, false); err != nil {
		t.Fatal(err)
	}
	lost := errors.New("target lost")
	r.breakWith(lost)
	if _, err := vol.Write(ino, 0, []byte("new"), false); err != nil {
		t.Fatal(err)
	}
	if err := c.Fsync(ino, false); !errors.Is(err, lost) {
		t.Fatalf("fsync on a lost target: %v", err)
	}
	r.breakWith(nil)
	if err := c.Fsync(ino, false); !errors.Is(err, lost) {
		t.Fatalf("a later fsync: %v, want the first failure", err)
	}
	if _, err := vol.Write(ino, 0, []byte("x"), false); !errors.Is(err, volume.ErrStopped) {
		t.Fatalf("write after the failure: %v", err)
	}
	if got := content(t, r.own, "f"); string(got) != "old" {
		t.Fatalf("the replica has %q", got)
	}
}

// broken is a region whose write-back fails.
type broken struct {
	pmem.Region
	err error
}

func (b broken) Flush([]pmem.Range) error { return b.err }

// Whoever made the committer hears once why it ended, also what failed below the local copy.
func TestFailed_IsToldOnceOfTheCause(t *testing.T) {
	region := heap(t)
	if err := volume.Format(region, volume.Params{PoolUUID: testUUID}); err != nil {
		t.Fatal(err)
	}
	vol, cause := open(t, region), &pmem.SyncError{Err: errors.New("made to fail")}
	var told []error
	c := New(Config{Volume: vol, Region: broken{region, cause}, Interval: time.Hour, Failed: func(err error) { told = append(told, err) }})
	ino := create(t, vol, "a", []byte("x"))
	for range 2 {
		if err := c.Fsync(ino, false); err == nil {
			t.Error("fsync succeeded")
		}
	}
	if err := c.Close(); err == nil {
		t.Error("close succeeded")
	}
	if len(told) != 1 || !errors.Is(told[0], cause.Err) {
		t.Errorf("told %v", told)
	}
}

func TestInterval_CommitsWithoutFsync(t *testing.T) {
	vol, r, c := start(t, 20*time.Millisecond)
	defer c.Close()
	create(t, vol, "f", []byte("nobody asked"))
	for end := time.Now().Add(10 * time.Second); r.drains() == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no commit within 10 s at an interval of 20 ms")
		}
	}
	if err := c.SyncAll(); err != nil {
		t.Fatal(err)
	}
	if got := content(t, r.own, "f"); string(got) != "nobody asked" {
		t.Fatalf("the replica has %q", got)
	}
}

func TestClose_LeavesNothingToReplayAndEqualCopies(t *testing.T) {
	vol, r, c := start(t, time.Hour)
	for i := range 50 {
		create(t, vol, fmt.Sprint("f", i), bytes.Repeat([]byte{byte(i)}, 1000*i))
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(r.local.Bytes(), r.own.Bytes()) {
		t.Fatal("local pool and replica differ after Close")
	}
	_, found, err := volume.Open(r.own, volume.Options{PoolUUID: testUUID, Term: 2, Now: testClock})
	if err != nil || found.Replayed != 0 {
		t.Fatalf("the replica replays %d records: %v", found.Replayed, err)
	}
	if err := c.Fsync(volume.Root, false); err != nil && !errors.Is(err, ErrClosed) {
		t.Fatalf("fsync after Close: %v", err)
	}
}

func TestCheckpoint_FreesSpaceForTheNextFile(t *testing.T) {
	vol, _, c := start(t, time.Hour)
	defer c.Close()
	big := make([]byte, 2<<20)
	for i := range 20 {
		ino := create(t, vol, "big", nil)
		vol.Hold(ino)
		_, err := vol.Write(ino, 0, big, false)
		for n := 0; errors.Is(err, volume.ErrShort) && n < 2; n++ {
			if err := c.Checkpoint(); err != nil {
				t.Fatal(err)
			}
			_, err = vol.Write(ino, 0, big, false)
		}
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if err := c.Fsync(ino, false); err != nil {
			t.Fatal(err)
		}
		if err := vol.Unlink(volume.Root, "big"); err != nil {
			t.Fatal(err)
		}
		vol.Forget(ino, 1)
	}
}

// narrow is the first n bytes of a region.
type narrow struct {
	pmem.Region
	n uint64
}

func (r narrow) Bytes() []byte { return r.Region.Bytes()[:r.n] }

// A full pool grows while others write, and the replica has what lies in the new space.
func TestGrow_FullPoolWithWriters(t *testing.T) {
	region := heapOf(t, 4*testPool)
	if err := volume.Format(narrow{region, testPool}, volume.Params{PoolUUID: testUUID}); err != nil {
		t.Fatal(err)
	}
	vol := open(t, region)
	r := &replica{local: region, own: heapOf(t, 4*testPool), jobs: make(chan job, 64)}
	copy(r.own.Bytes(), region.Bytes())
	r.done.Add(1)
	go r.run()
	defer func() { close(r.jobs); r.done.Wait() }()
	c := New(Config{Volume: vol, Region: region, Targets: []Copy{r}, Interval: time.Hour})
	r.report = func(seq uint64, err error) { c.Drained(1, seq, err) }
	defer c.Close()
	write := func(ino volume.Ino, off uint64, b []byte) error {
		for tries := 0; ; tries++ {
			n, err := vol.Write(ino, off, b, false)
			if off, b = off+uint64(n), b[n:]; len(b) == 0 {
				return c.Fsync(ino, false)
			}
			if !errors.Is(err, volume.ErrShort) || tries == 2 {
				return err
			}
			if err := c.Checkpoint(); err != nil {
				return err
			}
		}
	}
	first, block := create(t, vol, "first", nil), bytes.Repeat([]byte("x"), 64<<10)
	off := uint64(0)
	for ; ; off += uint64(len(block)) {
		if err := write(first, off, block); errors.Is(err, volume.ErrShort) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	var writers sync.WaitGroup
	writers.Go(func() {
		for n := uint64(0); ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := write(first, n%off, block[:100]); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for size := uint64(2 * testPool); size <= 4*testPool; size += testPool {
		if err := c.Grow(size); err != nil {
			t.Fatal(err)
		}
	}
	second := bytes.Repeat([]byte("y"), 2*testPool)
	ino := create(t, vol, "second", nil)
	err := write(ino, 0, second)
	close(stop)
	writers.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content(t, r.own, "second"), second) {
		t.Error("the replica has other bytes in the new space")
	}
	if err := c.Grow(testPool); err == nil {
		t.Error("the pool shrank")
	}
}

func TestFsync_AllocatesNothing(t *testing.T) {
	region := heap(t)
	if err := volume.Format(region, volume.Params{PoolUUID: testUUID}); err != nil {
		t.Fatal(err)
	}
	vol := open(t, region)
	c := New(Config{Volume: vol, Region: region, Interval: time.Hour})
	defer c.Close()
	block := make([]byte, 4096)
	ino := create(t, vol, "f", block)
	sync := func() {
		if _, err := vol.Write(ino, 0, block, false); err != nil {
			t.Fatal(err)
		}
		if err := c.Fsync(ino, false); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		sync()
	}
	if n := testing.AllocsPerRun(500, sync); n >= 1 {
		t.Fatalf("%v allocations per write and fsync, want 0", n)
	}
}

// TestSettle_CopiesAreEqualInFreeSpaceToo: bytes that were given up before any job named them, of files and of tree nodes, are
// on the local copy alone until then.
func TestSettle_CopiesAreEqualInFreeSpaceToo(t *testing.T) {
	vol, r, c := start(t, time.Hour)
	defer c.Close()
	for round := range 3 {
		for i := range 60 {
			name := fmt.Sprintf("f%d", i)
			ino := create(t, vol, name, bytes.Repeat([]byte{byte(i + round)}, 9000))
			if i%3 == 0 {
				if err := c.Fsync(ino, false); err != nil {
					t.Fatal(err)
				}
				if _, err := vol.Write(ino, 100, []byte("in place, never flushed"), false); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range 60 {
			if err := vol.Unlink(volume.Root, fmt.Sprintf("f%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		if r.equal() {
			t.Fatalf("round %d: the copies are equal before Settle: the test gave nothing up", round)
		}
		if err := c.Settle(); err != nil {
			t.Fatal(err)
		}
		if !r.equal() {
			t.Fatalf("round %d: the copies differ after Settle", round)
		}
	}
}

// Files whose content nobody synced must not hold up space that a checkpoint could give: what is set aside for them goes with their flush.
func TestCheckpoint_ManyUnsyncedFilesFillThePool(t *testing.T) {
	region := heapOf(t, 128<<20) // so large that data run short before the log does
	if err := volume.Format(region, volume.Params{PoolUUID: testUUID}); err != nil {
		t.Fatal(err)
	}
	vol := open(t, region)
	c := New(Config{Volume: vol, Region: region, Interval: time.Hour})
	defer c.Close()
	block := bytes.Repeat([]byte("x"), 4096)
	change := func(fn func() error) error {
		err := fn()
		for n := 0; errors.Is(err, volume.ErrShort) && n < 2; n++ {
			if err := c.Checkpoint(); err != nil {
				t.Fatal(err)
			}
			err = fn()
		}
		return err
	}
	files := 0
	for {
		var a volume.Attr
		err := change(func() (err error) {
			a, err = vol.Make(volume.Root, fmt.Sprint("f", files), volume.Make{Mode: syscall.S_IFREG | 0o644})
			return err
		})
		if err == nil {
			err = change(func() error { _, err := vol.Write(a.Ino, 0, block, false); return err })
		}
		if errors.Is(err, volume.ErrShort) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		files++
	}
	if st := vol.StatFS(); st.Avail > st.Blocks/20 {
		t.Fatalf("full after %d files, but %d of %d blocks are available", files, st.Avail, st.Blocks)
	}
}
