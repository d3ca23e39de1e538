package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// version is content that proves to be whole.
func version(rnd *rand.Rand) []byte {
	body := strings.Repeat(fmt.Sprintf("%016x\n", rnd.Uint64()), 1+rnd.IntN(2000))
	sum := sha256.Sum256([]byte(body))
	return []byte(hex.EncodeToString(sum[:]) + body)
}

func whole(b []byte) bool {
	if len(b) < 64 {
		return false
	}
	sum := sha256.Sum256(b[64:])
	return string(b[:64]) == hex.EncodeToString(sum[:])
}

// TestRenameOver_OldOrNewNeverTorn: the usual way to replace a file, without any fsync, leaves one whole version after a crash.
func TestRenameOver_OldOrNewNeverTorn(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{config: []string{`commit_interval = "10ms"`}})
	seed := rand.Uint64()
	t.Logf("seed: %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	r.must(writeSync(r.path("config"), version(rnd)))
	for round := range uint64(4) {
		end := make(chan int, 1)
		go func() {
			n := 0
			versions := rand.New(rand.NewPCG(seed, 1+round))
			for r.replaceFile(version(versions)) == nil {
				n++
			}
			end <- n
		}()
		time.Sleep(time.Duration(100+rnd.IntN(50)) * time.Millisecond)
		r.must(r.pool.KillDaemon()) // the dead mount stays: without it the loop would go on in the directory below
		t.Logf("killed after %d versions", <-end)
		r.must(r.pool.Mount())
		r.wantWhole(r.path("config"))
	}
	r.must(r.pool.Kill())
	r.wantWhole(filepath.Join(r.promoted(0).Mountpoint, "config"))
}

func (r *rig) replaceFile(b []byte) error {
	if err := store(r.path("config.new"), b, false); err != nil {
		return err
	}
	return os.Rename(r.path("config.new"), r.path("config"))
}

func (r *rig) wantWhole(path string) {
	r.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil || !whole(b) {
		r.t.Errorf("%s: %d bytes, no whole version, %v", path, len(b), err)
	}
}
