package rig

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

//go:embed jobs/*.sh
var jobFiles embed.FS

const defaultTime = time.Minute

// job is one file of jobs/.
type job struct {
	name     string // of the file, without .sh
	about    string
	text     string
	runs     [][]string // variables of each run, "name=value"
	programs []program
	limit    time.Duration // of one run
	boot     string
	guests   int
	cpus     int  // of each guest: the most that a job asks for of those that are run in the boot
	measures bool // it prints figures, and is made only when somebody asks for it
}

// program is something that is built for the guest. Its name is the one that go gives it.
type program struct {
	name, pkg string
	recipe
}

// recipe is how programs are built.
type recipe struct {
	tags string
	test bool
}

// loadJobs parses all jobs, in the order of their names.
func loadJobs(files fs.FS) ([]job, error) {
	names, err := fs.Glob(files, "jobs/*.sh")
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var jobs []job
	for _, n := range names {
		text, err := fs.ReadFile(files, n)
		if err != nil {
			return nil, err
		}
		j, err := parseJob(strings.TrimSuffix(path.Base(n), ".sh"), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n, err)
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// parseJob reads the lines "# key: value" at the top of a script.
func parseJob(name, text string) (job, error) {
	j := job{name: name, text: text, limit: defaultTime, boot: "main", guests: 1, cpus: 1}
	tags := ""
	for line := range strings.Lines(text) {
		comment, ok := strings.CutPrefix(line, "#")
		if !ok {
			break
		}
		key, value, ok := strings.Cut(strings.TrimSpace(comment), ": ")
		if !ok {
			continue
		}
		if key == "tags" {
			tags = value
			continue
		}
		if err := j.set(key, value); err != nil {
			return job{}, fmt.Errorf("%q: %w", strings.TrimSpace(line), err)
		}
	}
	for i := range j.programs {
		j.programs[i].tags = tags
	}
	if len(j.runs) == 0 {
		j.runs = [][]string{nil}
	}
	if j.about == "" {
		return job{}, fmt.Errorf("no line \"# job: ...\" that says what the job shows")
	}
	return j, nil
}

func (j *job) set(key, value string) (err error) {
	words := strings.Fields(value)
	switch key {
	case "job":
		j.about = value
	case "run":
		for _, w := range words {
			if !strings.Contains(w, "=") {
				return fmt.Errorf("%q is not name=value", w)
			}
		}
		j.runs = append(j.runs, words)
	case "build", "test":
		if len(words) != 2 {
			return fmt.Errorf("want the name of a program and a package")
		}
		p := program{words[0], words[1], recipe{test: key == "test"}}
		name := path.Base(p.pkg)
		if p.test {
			name += ".test"
		}
		if p.name != name {
			return fmt.Errorf("go calls it %s", name)
		}
		j.programs = append(j.programs, p)
	case "time":
		j.limit, err = time.ParseDuration(value)
	case "boot":
		j.boot = value
	case "measures":
		if value != "yes" {
			return fmt.Errorf("want yes, or no such line")
		}
		j.measures = true
	case "guests":
		if value != "2" {
			return fmt.Errorf("want 2, or no such line")
		}
		j.guests, j.boot = 2, j.name
	case "cpus":
		if value != "2" {
			return fmt.Errorf("want 2, or no such line")
		}
		j.cpus = 2
	default:
		return fmt.Errorf("no such key")
	}
	return err
}

// task is one run of a job.
type task struct {
	job       *job
	variables []string
	missing   string // why it is not run; "" if it is
}

func (t task) String() string {
	s := t.job.name
	for _, v := range t.variables {
		_, value, _ := strings.Cut(v, "=")
		s += " " + value
	}
	return s
}

// device is the type of RDMA device that the run wants, or "".
func (t task) device() string {
	for _, v := range t.variables {
		if d, ok := strings.CutPrefix(v, "device="); ok {
			return d
		}
	}
	return ""
}

// tasks lists the runs of all jobs for which keep returns true. Those that want a device that this guest does not have are marked.
func tasks(jobs []job, devices []string, keep func(name string) bool) []task {
	var all []task
	for i := range jobs {
		for _, v := range jobs[i].runs {
			t := task{job: &jobs[i], variables: v}
			if !keep(t.String()) {
				continue
			}
			if d := t.device(); d != "" && !slices.Contains(devices, d) {
				t.missing = "no usable " + d + " in this kernel"
			}
			all = append(all, t)
		}
	}
	return all
}
