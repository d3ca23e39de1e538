package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// emulator is the package with a processor of arm64 for programs. That of trixie (qemu 10) carries out DC CVAP; Debian 12's says that its processor has the
// instruction, and raises SIGILL.
const emulator = "qemu-user"

// arm64Timeout bounds the tests in one processor.
const arm64Timeout = 2 * time.Minute

// processors of arm64 in which the persistence primitives are tried: one with DC CVAP and one without.
var processors = []struct{ name, dcpop string }{{"max", "yes"}, {"cortex-a57", "no"}}

// primitives are the tests of internal/pmem that need no kernel of arm64, by the beginnings of their names.
var primitives = []string{"TestFeatures", "TestLineLength", "TestEvery", "TestStream", "TestEADR", "TestDrain", "TestHotPaths"}

// RunARM64 runs the tests of internal/pmem, which program holds, built for arm64, in emulated processors. A test that skips itself is a failure. The error is
// an UnavailableError if this machine cannot have the emulator.
func RunARM64(ctx context.Context, o Options, program string) error {
	prepared, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	qemu, err := findEmulator(prepared, o)
	if err != nil {
		return err
	}
	for _, p := range processors {
		if err := runPrimitives(ctx, o.Out, qemu, p.name, p.dcpop, program); err != nil {
			return fmt.Errorf("processor %s: %w", p.name, err)
		}
	}
	return nil
}

// findEmulator gets the emulator into the cache and returns its path.
func findEmulator(ctx context.Context, o Options) (string, error) {
	c, err := openCache(ctx, o.Cache, func(format string, args ...any) { fmt.Fprintf(o.Out, format+"\n", args...) })
	if err != nil {
		return "", err
	}
	defer c.close()
	main, security, err := mirrors(ctx)
	if err != nil {
		return "", err
	}
	a, err := newApt(filepath.Join(c.dir, "apt-"+newest.name), newest.sources(main, security))
	if err != nil {
		return "", err
	}
	var dir string
	err = withLists(ctx, a, func() error {
		version, err := a.version(ctx, emulator, "trixie")
		if err != nil {
			return err
		}
		dir, err = c.entry(emulator+"-"+strings.ReplaceAll(version, ":", "_"), func(dir string) error {
			debs, err := a.fetch(ctx, emulator+"="+version)
			if err != nil {
				return err
			}
			return errors.Join(unpackFile(ctx, dir, debs[0], "usr/bin/qemu-aarch64"), discard(debs))
		})
		return err
	})
	return filepath.Join(dir, "usr/bin/qemu-aarch64"), err
}

// unpackFile unpacks one file: the package has the emulators of all processors.
func unpackFile(ctx context.Context, root, deb, name string) error {
	_, err := run(ctx, "", nil, "bash", "-o", "pipefail", "-c", `dpkg-deb --fsys-tarfile "$1" | tar -C "$2" -x "./$3"`, "unpack", deb, root, name)
	return err
}

func runPrimitives(ctx context.Context, out io.Writer, qemu, cpu, dcpop, program string) error {
	ctx, cancel := context.WithTimeout(ctx, arm64Timeout)
	defer cancel()
	begun := time.Now()
	text, err := run(ctx, "", []string{"PMEMFS_ARM64_DCPOP=" + dcpop}, qemu, "-cpu", cpu, program, "-test.v", "-test.run", "^("+strings.Join(primitives, "|")+")")
	if err != nil {
		return err
	}
	if err := allPassed(text, primitives); err != nil {
		return err
	}
	fmt.Fprintf(out, "arm64 %-40s %5.1f s  ok\n", cpu+", DC CVAP: "+dcpop, time.Since(begun).Seconds())
	return nil
}

// allPassed looks for a passed test of each name in the output of go test -v, and for one that did anything else.
func allPassed(text string, names []string) error {
	for _, m := range regexp.MustCompile(`(?m)^\s*--- (FAIL|SKIP): .*\n?.*`).FindAllString(text, -1) {
		return fmt.Errorf("a test has not passed:\n%s", m)
	}
	passed := regexp.MustCompile(`(?m)^--- PASS: (\S+)`).FindAllStringSubmatch(text, -1)
	for _, name := range names {
		if !slices.ContainsFunc(passed, func(m []string) bool { return strings.HasPrefix(m[1], name) }) {
			return fmt.Errorf("no test %s... has run", name)
		}
	}
	return nil
}
