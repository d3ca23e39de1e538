package integration

import (
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
	r := newRig(t, setup{replica: []string{`method = "apm"`}})
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

// An ordinary file is written by msync, so APM would acknowledge what the disk does not have: the mount is refused, eADR or not.
func TestAPM_RefusedOnDisk(t *testing.T) {
	t.Parallel()
	r := newBareStage(t, setup{media: true})
	target := r.startTarget("t0")
	r.must(os.WriteFile(r.Path("platform.toml"), []byte("eadr = true\n"), 0o644))
	r.must(target.Terminate())
	r.must(appendLine(target.Config, fmt.Sprintf("platform = %q", r.Path("platform.toml"))))
	r.must(target.Start())
	var err error
	r.pool, err = r.NewPool("a", r.Path("a.pool"), []stage.Replica{{Target: target, Set: set, Config: []string{`method = "apm"`}}})
	r.must(err)
	r.must(r.pool.Make())
	wantText(t, "mount", r.pool.Mount(), "CLAIM refused: APM: ", "ordinary file", `method = "auto"`)
	r.must(target.Terminate())
	r.must(appendLine(target.Config, `methods = ["apm"]`))
	r.must(target.Start())
	r.pool, err = r.NewPool("a", r.Path("a.pool"), []stage.Replica{{Target: target, Set: set}})
	r.must(err)
	wantText(t, "mount of a target that allows APM alone", r.pool.Mount(), "not among the methods that target.toml allows", "ordinary file")
	r.pool, err = r.NewPool("a", r.Path("a.pool"), []stage.Replica{{Target: target, Set: set, Config: []string{`method = "flush"`}}})
	r.must(err)
	wantText(t, "mount with FLUSH", r.pool.Mount(), "cannot do RDMA FLUSH", `method = "auto"`)
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
