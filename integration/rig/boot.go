package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// slack is what a run may take beyond its limit: to be killed, and to be cleaned up after.
const slack = 60 * time.Second

// starts is how often the guests of a boot are started before it is given up.
const starts = 3

// result is how a task went.
type result struct {
	task
	seconds float64
	failure string // "" if it is ok
	output  string // of a failed one
}

// boot is one start of one guest, or of two, and the tasks that share it.
type boot struct {
	name  string
	tasks []task
}

// boots groups the tasks that are to be run. Those with two guests, which wait the most, come first, then those that may take the longest, so that none is alone at the end.
func boots(all []task) []boot {
	var list []boot
	index := map[string]int{}
	for _, t := range all {
		name := t.job.boot
		if t.missing != "" {
			continue
		}
		i, ok := index[name]
		if !ok {
			i = len(list)
			index[name] = i
			list = append(list, boot{name: name})
		}
		list[i].tasks = append(list[i].tasks, t)
	}
	slices.SortStableFunc(list, func(a, b boot) int {
		return cmp.Or(cmp.Compare(b.guests(), a.guests()), cmp.Compare(b.limit(), a.limit()))
	})
	return list
}

func (b boot) guests() int { return b.tasks[0].job.guests }

// limit is what all runs of the boot may take.
func (b boot) limit() (sum time.Duration) {
	for _, t := range b.tasks {
		sum += t.job.limit
	}
	return sum
}

// machines makes the guests of a boot, with the lists of what they have to run.
func (b boot) machines(qemu []string, kernel, image string, s share) ([]*machine, error) {
	sides, cpus := []string{"AB"}, 1
	if b.guests() == 2 {
		sides = []string{"A", "B"}
	}
	var list strings.Builder
	for i, t := range b.tasks {
		cpus = max(cpus, t.job.cpus)
		fmt.Fprintf(&list, "%d %d %s.sh %s\n", i, int(t.job.limit.Seconds()), t.job.name, strings.Join(t.variables, " "))
	}
	var ms []*machine
	for _, side := range sides {
		m := &machine{boot: b.name, sides: side, dir: filepath.Join(s.work, b.name, side), cpus: cpus, qemu: qemu, kernel: kernel, image: image, share: s}
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(m.path("list"), []byte(list.String()), 0o644); err != nil {
			return nil, err
		}
		ms = append(ms, m)
	}
	return ms, nil
}

// run starts the guests and gives each result to report as it comes. It returns when all guests have ended. What else is worth
// knowing goes to note.
func (b boot) run(ctx context.Context, ms []*machine, report func(result), note func(string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() {
		for _, m := range ms {
			if m.cmd != nil && m.cmd.Process != nil {
				m.cut()
			}
		}
	}()
	trouble, err := b.start(ctx, ms, note)
	if err != nil {
		return err
	}
	if trouble != "" {
		for _, t := range b.tasks {
			report(b.lost(t, trouble, ms))
		}
		return ctx.Err()
	}
	for i, t := range b.tasks {
		start := time.Now()
		trouble := b.await(ctx, ms, strconv.Itoa(i)+".rc", t.job.limit+slack, note)
		r := result{task: t, seconds: time.Since(start).Seconds()}
		if trouble != "" {
			r = b.lost(t, trouble, ms)
		} else {
			r.failure, r.output = b.verdict(i, ms)
		}
		report(r)
	}
	b.await(ctx, ms, "dmesg", slack, note)
	return ctx.Err()
}

// start returns when the guests are ready for their first run, or says what went wrong. A kernel that does not come up under emulation says
// nothing of what is tested, and has not touched it, so a guest gets several starts. The other one of a pair, if it is up, has begun its first run, and waits there.
func (b boot) start(ctx context.Context, ms []*machine, note func(string)) (trouble string, err error) {
	for try := range starts {
		for _, m := range ms {
			if m.up() {
				continue
			}
			if err := m.power(ctx); err != nil {
				return "", err
			}
		}
		if trouble = b.await(ctx, ms, "ready", bootTimeout, note); trouble == "" || ctx.Err() != nil || try == starts-1 {
			break
		}
		for _, m := range ms {
			if !m.up() {
				m.cut()
				if err := os.Remove(m.path("ready")); err != nil && !errors.Is(err, os.ErrNotExist) {
					return "", err
				}
			}
		}
		note(b.lost(task{}, fmt.Sprintf("boot %s, start %d of %d: %s", b.name, try+1, starts, trouble), ms).text())
	}
	return trouble, nil
}

// text is a result of no run.
func (r result) text() string { return r.failure + "\n" + r.output }

// await waits until every guest has written the named file, and serves their requests meanwhile. It returns what went wrong.
func (b boot) await(ctx context.Context, ms []*machine, name string, d time.Duration, note func(string)) string {
	for end := time.Now().Add(d); ; {
		missing := ""
		for _, m := range ms {
			if trouble := b.obey(ctx, m, note); trouble != "" {
				return trouble
			}
			if _, err := os.Stat(m.path(name)); err == nil {
				continue
			}
			if m.ended() {
				return "the guest " + m.sides + " ended"
			}
			missing = m.sides
		}
		switch {
		case missing == "":
			return ""
		case ctx.Err() != nil:
			return ctx.Err().Error()
		case time.Now().After(end):
			return fmt.Sprintf("the guest %s did not finish it within %v", missing, d)
		}
		_ = pause(ctx, 50*time.Millisecond)
	}
}

// obey cuts the power of a guest if one asks for it, and gives it back. It returns when the guest is there again, or what went wrong.
func (b boot) obey(ctx context.Context, m *machine, note func(string)) (trouble string) {
	err := os.Remove(filepath.Join(m.share.work, b.name, "cut."+m.sides))
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	m.cut()
	if err := errors.Join(err, os.Remove(m.path("ready"))); err != nil {
		return err.Error()
	}
	trouble, err = b.start(ctx, []*machine{m}, note)
	if err != nil {
		return err.Error()
	}
	return trouble
}

// verdict reads what the guests said about run i.
func (b boot) verdict(i int, ms []*machine) (failure, output string) {
	for _, m := range ms {
		rc, err := os.ReadFile(m.path(strconv.Itoa(i) + ".rc"))
		text, _ := os.ReadFile(m.path(strconv.Itoa(i) + ".out"))
		code := strings.TrimSpace(string(rc))
		switch {
		case err != nil:
			failure = err.Error()
		case code == "124" || code == "137":
			failure = "timed out"
		case code != "0":
			failure = "exit code " + code
		default:
			output += section("guest "+m.sides+", ok", string(text), 60)
			continue
		}
		output += section("guest "+m.sides+", "+failure, string(text), 200)
	}
	return failure, output
}

// lost is the result of a task whose guest is gone.
func (b boot) lost(t task, why string, ms []*machine) result {
	r := result{task: t, failure: why}
	for _, m := range ms {
		for _, name := range []string{"qemu", "console"} {
			text, _ := os.ReadFile(m.path(name))
			r.output += section(name+" of guest "+m.sides, string(text), 40)
		}
	}
	return r
}

func section(title, text string, lines int) string {
	if strings.TrimSpace(text) == "" {
		return ""
	}
	return "--- " + title + "\n" + tail(text, lines) + "\n"
}
