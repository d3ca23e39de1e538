package rig

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

	// indexAge is how old package lists may be. A package of backports leaves the mirror when its successor comes, so old lists name what cannot be had.
	indexAge = 24 * time.Hour

	indexTimeout    = 3 * time.Minute
	downloadTimeout = 5 * time.Minute
)

// UnavailableError means that this machine cannot have what the rig is made of: packages, or programs to unpack them. It says nothing about the code under test.
type UnavailableError struct{ Cause error }

func (e *UnavailableError) Error() string { return e.Cause.Error() }
func (e *UnavailableError) Unwrap() error { return e.Cause }

// apt is an apt configuration of its own: sources, lists, archives and an empty list of installed packages below dir. An update removes the lists of sources
// that it does not know, hence one directory per set of sources.
type apt struct {
	dir     string
	config  string // file, read after the system's
	sources string // the lines of its list of sources

	mu    sync.Mutex // one program of apt at a time: they lock files, and do not wait for each other
	fresh bool       // the lists were fetched by this process; protected by mu
}

// newApt makes the configuration. Each source is "URI SUITE".
func newApt(dir string, sources []string) (*apt, error) {
	for _, d := range []string{"lists/partial", "cache/archives/partial", "none/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	var list strings.Builder
	for _, s := range sources {
		fmt.Fprintf(&list, "deb [signed-by=%s] %s main\n", keyring, s)
	}
	sourceList, status := filepath.Join(dir, "sources.list"), filepath.Join(dir, "status")
	if err := errors.Join(os.WriteFile(sourceList, []byte(list.String()), 0o644), os.WriteFile(status, nil, 0o644)); err != nil {
		return nil, err
	}
	a := &apt{dir: dir, config: filepath.Join(dir, "apt.conf"), sources: list.String()}
	config := fmt.Sprintf(`Dir::Etc::SourceList %q;
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State::Lists %q;
Dir::State::status %q;
Dir::Cache %q;
APT::Architecture "amd64";
APT::Sandbox::User "root";
Acquire::Retries "3";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
`, sourceList, filepath.Join(dir, "lists"), status, filepath.Join(dir, "cache"))
	return a, os.WriteFile(a.config, []byte(config), 0o644)
}

// update fetches the lists if they are old, or in any case with force, but once in a process. If that fails, older lists will do: what they name may be in the cache.
func (a *apt) update(ctx context.Context, force bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	stamp := filepath.Join(a.dir, "updated")
	info, err := os.Stat(stamp)
	if err == nil && time.Since(info.ModTime()) < indexAge && !force || a.fresh {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, indexTimeout)
	defer cancel()
	if err := os.RemoveAll(a.answers()); err != nil {
		return err
	}
	if _, updateErr := a.command(ctx, a.dir, "apt-get", "-q", "-o", "APT::Update::Error-Mode=any", "update"); updateErr != nil {
		if err == nil && !force {
			return nil
		}
		return &UnavailableError{updateErr}
	}
	a.fresh = true
	return os.WriteFile(stamp, nil, 0o644)
}

// isFresh reports whether there can be no newer lists.
func (a *apt) isFresh() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fresh
}

// answers is where ask keeps what it was told about the present lists.
func (a *apt) answers() string { return filepath.Join(a.dir, "answers") }

// ask returns what an apt program says about the lists. It takes a second to look through them, so an answer is kept until there are others.
func (a *apt) ask(ctx context.Context, program string, args ...string) (string, error) {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{a.sources, program}, args...), "\x00")))
	kept := filepath.Join(a.answers(), fmt.Sprintf("%x", sum[:12]))
	a.mu.Lock() // an update removes the answers
	defer a.mu.Unlock()
	if text, err := os.ReadFile(kept); err == nil {
		return string(text), nil
	}
	out, err := a.command(ctx, "", program, args...)
	if err != nil {
		return "", &UnavailableError{err}
	}
	partial := kept + ".partial"
	return out, errors.Join(os.MkdirAll(a.answers(), 0o755), os.WriteFile(partial, []byte(out), 0o644), os.Rename(partial, kept))
}

// run runs an apt program with this configuration and returns what it printed.
func (a *apt) run(ctx context.Context, dir, program string, args ...string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.command(ctx, dir, program, args...)
}

// command does it. The lock is held.
func (a *apt) command(ctx context.Context, dir, program string, args ...string) (string, error) {
	return run(ctx, dir, nil, program, append([]string{"-c", a.config}, args...)...)
}

// version is the newest version of a package in a suite.
func (a *apt) version(ctx context.Context, pkg, suite string) (string, error) {
	out, err := a.ask(ctx, "apt-cache", "madison", pkg)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) { // "name | version | uri suite/component arch Packages", newest first
		f := strings.Split(line, "|")
		if len(f) == 3 && strings.Contains(f[2], " "+suite+"/") {
			return strings.TrimSpace(f[1]), nil
		}
	}
	return "", &UnavailableError{fmt.Errorf("%s has no package %s", suite, pkg)}
}

// depends are the names in the Depends field of one version of a package.
func (a *apt) depends(ctx context.Context, pkg, version string) ([]string, error) {
	out, err := a.ask(ctx, "apt-cache", "show", "--no-all-versions", pkg+"="+version)
	if err != nil {
		return nil, err
	}
	var names []string
	for sc := bufio.NewScanner(strings.NewReader(out)); sc.Scan(); {
		if list, ok := strings.CutPrefix(sc.Text(), "Depends:"); ok {
			for d := range strings.SplitSeq(list, ",") {
				names = append(names, strings.Fields(d)[0])
			}
		}
	}
	return names, nil
}

// closure names the archives (name_version_arch.deb) of packages and of everything they depend on.
func (a *apt) closure(ctx context.Context, suite string, pkgs ...string) ([]string, error) {
	none := "Dir::Cache::Archives=" + filepath.Join(a.dir, "none") // apt leaves out what it has
	out, err := a.ask(ctx, "apt-get", append([]string{"install", "-o", none, "-qq", "-y", "--no-install-recommends", "--print-uris", "-t", suite}, pkgs...)...)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(out) { // 'uri' file size hash
		if f := strings.Fields(line); len(f) >= 3 && strings.HasSuffix(f[1], ".deb") {
			names = append(names, f[1])
		}
	}
	if len(names) == 0 {
		return nil, &UnavailableError{fmt.Errorf("apt-get install --print-uris %s printed no archive", strings.Join(pkgs, " "))}
	}
	return names, nil
}

// fetchClosure downloads them into a directory that is called to. apt goes on where an earlier try ended, and checks the hash of each.
func (a *apt) fetchClosure(ctx context.Context, to, suite string, pkgs ...string) ([]string, error) {
	names, err := a.closure(ctx, suite, pkgs...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	archives := filepath.Join(a.dir, "cache", to)
	if err := os.MkdirAll(filepath.Join(archives, "partial"), 0o755); err != nil {
		return nil, err
	}
	options := []string{"install", "-o", "Dir::Cache::Archives=" + archives, "-q", "-y", "--no-install-recommends", "--download-only", "-t", suite}
	if _, err := a.run(ctx, a.dir, "apt-get", append(options, pkgs...)...); err != nil {
		return nil, &UnavailableError{err}
	}
	for i, n := range names {
		names[i] = filepath.Join(archives, n)
	}
	return names, nil
}

// fetch downloads packages, "name=version", without what they depend on.
func (a *apt) fetch(ctx context.Context, pkgs ...string) ([]string, error) {
	dir := filepath.Join(a.dir, "single")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	if _, err := a.run(ctx, dir, "apt-get", append([]string{"download", "-q"}, pkgs...)...); err != nil {
		return nil, &UnavailableError{err}
	}
	var debs []string
	for _, p := range pkgs {
		name, version, _ := strings.Cut(p, "=")
		found, err := filepath.Glob(filepath.Join(dir, name+"_"+strings.ReplaceAll(version, ":", "%3a")+"_*.deb"))
		if err != nil || len(found) != 1 {
			return nil, &UnavailableError{fmt.Errorf("apt-get download %s left %d archives in %s (%w)", p, len(found), dir, err)}
		}
		debs = append(debs, found[0])
	}
	return debs, nil
}

// discard removes archives that have been unpacked.
func discard(debs []string) error {
	var errs []error
	for _, d := range debs {
		errs = append(errs, os.Remove(d))
	}
	return errors.Join(errs...)
}

// mirrors returns the mirror of Debian that this machine uses, and that of its security updates ("" if it uses none).
func mirrors(ctx context.Context) (main, security string, err error) {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", "", &UnavailableError{err}
	}
	var codename string
	for line := range strings.Lines(string(release)) {
		if v, ok := strings.CutPrefix(line, "VERSION_CODENAME="); ok {
			codename = strings.Trim(strings.TrimSpace(v), `"`)
		}
	}
	out, err := run(ctx, "", nil, "apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return "", "", &UnavailableError{err}
	}
	for line := range strings.Lines(out) {
		suite, uri, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case suite == codename && main == "":
			main = uri
		case suite == codename+"-security" && security == "":
			security = uri
		}
	}
	if main == "" || codename == "" {
		return "", "", &UnavailableError{fmt.Errorf("no source of apt is a mirror of Debian %q: the rig is made of Debian's packages", codename)}
	}
	return main, security, nil
}
