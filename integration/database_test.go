package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/integration/stage"
)

// TestSQLite_TwoProcessesInWAL: two processes commit to one database in WAL mode, whose index is a shared mapping. When the
// initiator is killed in the middle of it, the replica has every row whose commit returned.
func TestSQLite_TwoProcessesInWAL(t *testing.T) {
	t.Parallel()
	needs(t, "sqlite3", "sqlite3")
	r := newRig(t, setup{})
	db := r.path("data.db")
	r.sqlite(db, "pragma journal_mode=wal; create table t(writer, n, filler, primary key(writer, n));")
	var acked [2]atomic.Int64
	var writers sync.WaitGroup
	for w := range acked {
		s := r.speak("sqlite3", "-batch", "-cmd", ".timeout 20000", db)
		writers.Go(func() {
			fmt.Fprintln(s.in, ".bail on\npragma synchronous=full;")
			for n := int64(1); ; n++ {
				// The shell prints nothing of its own; echo runs once the lines before it have succeeded.
				line := fmt.Sprintf("begin immediate; insert into t values(%d, %d, hex(randomblob(700))); commit;\n.system echo %d", w, n, n)
				if answer, err := s.ask(line); err != nil || answer != strconv.FormatInt(n, 10) {
					break
				}
				acked[w].Store(n)
			}
			_ = s.end() // it fails with the file system
		})
	}
	want := int64(scaled(60))
	r.must(stage.WaitFor(60*time.Second, "commits of both processes", func() bool {
		return acked[0].Load() >= want && acked[1].Load() >= want
	}))
	r.must(r.pool.KillDaemon())
	writers.Wait()
	replica := r.takeOver()
	if got := r.sqlite(db, "pragma integrity_check;"); got != "ok" {
		t.Errorf("integrity_check: %s", got)
	}
	for w := range acked {
		n := acked[w].Load()
		got := r.sqlite(db, fmt.Sprintf("select count(*) from t where writer=%d and n<=%d;", w, n))
		if got != strconv.FormatInt(n, 10) {
			t.Errorf("writer %d: %s rows of %d whose commit returned", w, got, n)
		}
	}
	t.Logf("%d and %d commits", acked[0].Load(), acked[1].Load())
	r.finish(replica)
}

func (r *rig) sqlite(db, sql string) string {
	r.t.Helper()
	out, err := stage.Run("sqlite3", "-batch", db, sql)
	r.must(err)
	return out
}

// postgres is a cluster in a directory of the mount, run as the user postgres.
type postgres struct {
	*rig
	data   string
	server *exec.Cmd
}

const postgresBin = "/usr/lib/postgresql/15/bin/"

// TestPostgres: a cluster survives the death of its own processes, then that of the initiator: the replica, mounted where the
// pool was, has every transaction whose commit pgbench saw, and sound tables and indexes.
func TestPostgres(t *testing.T) {
	t.Parallel()
	needs(t, "postgresql-15", postgresBin+"initdb", postgresBin+"pgbench", postgresBin+"pg_amcheck")
	r := newRig(t, setup{size: "256M"})
	p := &postgres{rig: r, data: r.path("pg")}
	r.must(os.Chmod(r.Dir, 0o711))
	r.must(os.Mkdir(p.data, 0o700))
	r.must(os.Mkdir(r.Path("socket"), 0o777))
	r.must(os.Chmod(r.Path("socket"), 0o777))
	_, err := stage.Run("chown", "postgres:", p.data)
	r.must(err)
	p.run("initdb", "-D", p.data, "-A", "trust", "--locale=C", "--wal-segsize=1", "--no-instructions")
	p.start()
	p.run("psql", p.on("-q", "-c", "create extension amcheck")...)
	p.run("pgbench", p.on("-i", "-q")...)
	done := p.benchUntil(p.kill)
	p.start()
	p.check(done)
	done += p.benchUntil(func() { r.must(r.pool.KillDaemon()) })
	p.kill() // what is left of it
	replica := r.takeOver()
	p.start()
	p.check(done)
	t.Logf("%d transactions", done)
	p.stop()
	r.finish(replica)
}

func (p *postgres) on(args ...string) []string {
	return append([]string{"-h", p.Path("socket")}, append(args, "postgres")...)
}

func (p *postgres) command(name string, args ...string) []string {
	return append([]string{"--reuid=postgres", "--regid=postgres", "--clear-groups", postgresBin + name}, args...)
}

func (p *postgres) run(name string, args ...string) string {
	p.t.Helper()
	out, err := stage.RunIn("/", "setpriv", p.command(name, args...)...)
	p.must(err)
	return out
}

// start returns when the server answers, which takes a recovery if it was killed.
func (p *postgres) start() {
	p.t.Helper()
	var err error
	p.server, err = p.Daemon("postgres.log", "setpriv", p.command("postgres", "-D", p.data, "-k", p.Path("socket"),
		"-c", "listen_addresses=", "-c", "shared_buffers=4MB", "-c", "max_wal_size=4MB", "-c", "log_checkpoints=off", "-c", "checkpoint_warning=0")...)
	p.must(err)
	p.must(stage.WaitFor(time.Minute, "PostgreSQL", func() bool {
		_, err := stage.Run(postgresBin+"pg_isready", "-h", p.Path("socket"), "-U", "postgres")
		return err == nil
	}))
}

// stop ends the server in the orderly way.
func (p *postgres) stop() {
	p.t.Helper()
	p.must(p.server.Process.Signal(syscall.SIGINT))
	p.must(within(p.t, soon, "PostgreSQL's end", p.server.Wait))
}

// benchUntil runs pgbench, ends the server under it by kill, and returns how many commits pgbench saw.
func (p *postgres) benchUntil(kill func()) int {
	p.t.Helper()
	want := p.rows() + scaled(1000)
	cmd := exec.Command("setpriv", p.command("pgbench", p.on("-n", "-c", "2", "-T", "120")...)...)
	cmd.Dir = "/"
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	p.must(cmd.Start())
	p.must(stage.WaitFor(time.Minute, "transactions", func() bool { return p.rows() >= want }))
	kill()
	late := time.AfterFunc(soon, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	_ = cmd.Wait() // it lost its server
	const before = "number of transactions actually processed: "
	_, text, found := strings.Cut(out.String(), before)
	n, err := strconv.Atoi(strings.FieldsFunc(text+" x", func(c rune) bool { return c < '0' || c > '9' })[0])
	if !found || err != nil || n == 0 {
		p.t.Fatalf("pgbench: %v: %s", err, out.String())
	}
	return n
}

// rows is the length of the history: one row a transaction.
func (p *postgres) rows() int {
	p.t.Helper()
	n, err := strconv.Atoi(p.run("psql", p.on("-A", "-t", "-c", "select count(*) from pgbench_history")...))
	p.must(err)
	return n
}

// check compares the history, one row a transaction, with what was acknowledged, and looks at every page.
func (p *postgres) check(acked int) {
	p.t.Helper()
	out := p.run("psql", p.on("-A", "-t", "-c", "select count(*), sum(delta) - (select sum(abalance) from pgbench_accounts) from pgbench_history")...)
	count, rest, _ := strings.Cut(out, "|")
	if n, err := strconv.Atoi(count); err != nil || n < acked || rest != "0" {
		p.t.Errorf("%d transactions were acknowledged; rows and difference of the sums: %s", acked, out)
	}
	p.run("pg_amcheck", "-h", p.Path("socket"), "--heapallindexed", "postgres")
}

// kill ends all processes of the server at once. They have sessions of their own, but the data directory is where they work.
func (p *postgres) kill() {
	p.t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	p.must(err)
	var pids []int
	for _, link := range links {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if dir, _ := os.Readlink(link); dir == p.data && syscall.Kill(pid, syscall.SIGKILL) == nil {
			pids = append(pids, pid)
		}
	}
	_ = within(p.t, soon, "PostgreSQL's end", p.server.Wait) // by the signal
	p.must(stage.WaitFor(soon, "end of PostgreSQL's processes", func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool { return !stage.Gone(pid) })
	}))
}
