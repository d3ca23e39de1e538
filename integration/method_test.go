package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pmemfs/pmemfs/integration/stage"
)

// With APM the target's daemon takes no message, whatever the files do, and the replica holds all that was acknowledged. A pool in memory promises
// no more than that, so no platform file is asked.
func TestAPM_NoSends(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{replica: []string{`method = "apm"`}, config: quiet})
	r.must(writeSync(r.path("cost"), make([]byte, 4096)))
	before := targetsOf(r.status())[0]
	r.must(overwriteSync(r.path("cost")))
	after := targetsOf(r.status())[0]
	if reads, writes := after.Reads-before.Reads, after.Writes-before.Writes; reads != 2 || writes != 3 {
		t.Errorf("an overwrite and its fsync took %d WRITEs and %d READs, not 3 (data, record, seal) and 2", writes, reads)
	}
	for i := range 20 {
		r.must(writeSync(r.path(fmt.Sprintf("f%d", i)), fmt.Appendf(nil, "content %d", i)))
	}
	r.must(writeSync(r.path("large"), make([]byte, 5<<20)))
	st := r.status()
	c := targetsOf(st)[0]
	if c.Method != "APM" || c.Sends != 0 || c.AnsweredSends != 0 || c.Reads < 20 {
		t.Errorf("%s with %d Sends and %d READs", c.Method, c.Sends, c.Reads)
	}
	if l := st.Copies[0]; l.Method != "none (memory)" {
		t.Errorf("the local copy is made persistent by %q", l.Method)
	}
	wantWords(t, "status", st.Text(), "APM over iwarp", "not used: method = \"apm\" is configured")
	r.must(r.pool.Kill())
	r.must(r.promoted(0).Check())
	for i := range 20 {
		r.wantContent(filepath.Join(r.Path("mnt-r0"), fmt.Sprintf("f%d", i)), fmt.Sprintf("content %d", i))
	}
}

// An ordinary file is written by msync, so APM would acknowledge what the disk does not have: the mount is refused, eADR or not. A refused mount
// leaves copies that are as equal as they were: with the right configuration the next one copies nothing.
func TestAPM_RefusedOnDisk(t *testing.T) {
	t.Parallel()
	r := newBareStage(t, setup{media: true})
	target := r.startTarget("t0")
	r.must(os.WriteFile(r.Path("platform.toml"), []byte("eadr = true\n"), 0o644))
	r.must(target.Terminate())
	r.must(appendLine(target.Config, fmt.Sprintf("platform = %q", r.Path("platform.toml"))))
	r.must(target.Start())
	configure := func(lines ...string) {
		t.Helper()
		var err error
		r.pool, err = r.NewPool("a", r.Path("a.pool"), []stage.Replica{{Target: target, Set: set, Config: lines}})
		r.must(err)
	}
	configure()
	r.must(r.pool.Make())
	r.must(r.pool.Mount())
	r.must(writeSync(r.path("f"), []byte("kept")))
	r.must(r.pool.Umount())
	configure(`method = "apm"`)
	wantText(t, "mount", r.pool.Mount(), "CLAIM refused: APM: ", "ordinary file", `method = "auto"`)
	r.must(target.Terminate())
	good, err := os.ReadFile(target.Config)
	r.must(err)
	r.must(appendLine(target.Config, `methods = ["apm"]`))
	r.must(target.Start())
	configure()
	wantText(t, "mount of a target that allows APM alone", r.pool.Mount(), "not among the methods that target.toml allows", "ordinary file")
	configure(`method = "flush"`)
	wantText(t, "mount with FLUSH", r.pool.Mount(), "cannot do RDMA FLUSH", `method = "auto"`)

	r.must(target.Terminate())
	r.must(os.WriteFile(target.Config, good, 0o644))
	r.must(target.Start())
	configure()
	r.must(r.pool.Mount())
	r.wantContent(r.path("f"), "kept")
	if st := r.status(); st.Verdict != "HEALTHY" || targetsOf(st)[0].BytesSent > 1<<20 {
		t.Errorf("after the refused mounts: %s, %d bytes sent", st.Verdict, targetsOf(st)[0].BytesSent)
	}
}

func overwriteSync(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(bytes.Repeat([]byte{1}, 4096))
	return errors.Join(err, f.Sync(), f.Close())
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, line)
	return err
}
