package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pmemfs/pmemfs/verbs/perf"
)

const (
	server    = "10.8.0.1"
	benchPort = "7490"
	sendPort  = "7480"
	limit     = 2 * time.Minute // of one run of a program; the clock of a guest can be fast
)

// in makes a command that runs in the network of a side.
func in(ctx context.Context, side, program string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=/run/netns/" + side, program}, args...)...)
}

// output runs a command and returns what it prints.
func output(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s%s", strings.Join(cmd.Args[2:], " "), err, out, stderr.Bytes())
	}
	return string(out), nil
}

// startServer starts `pmemfs bench fabric` on side A.
func startServer(provider string) (stop func(), err error) {
	return background("pmemfs", "bench", "fabric", "--provider", provider, "--listen", server+":"+benchPort)
}

// background starts a program on side A that says that it listens.
func background(program string, args ...string) (stop func(), err error) {
	cmd := in(context.Background(), "A", program, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	stop = func() {
		cmd.Process.Signal(os.Interrupt)
		kill := time.AfterFunc(5*time.Second, func() { cmd.Process.Kill() })
		cmd.Wait()
		kill.Stop()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "listening on ") {
		stop()
		return nil, fmt.Errorf("%s %s did not start: %q, %v", program, strings.Join(args, " "), line, err)
	}
	return stop, nil
}

// pmemfs returns a latency in us, or a bandwidth in MiB/s.
func (o *options) pmemfs(t perf.Test) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	out, err := output(in(ctx, "B", "pmemfs", "bench", "fabric", "--provider", o.provider, "--json", "--busy", "--only", t.Name, "--size", fmt.Sprint(t.Size),
		"--iterations", fmt.Sprint(o.iterations), "--time", "500ms", "--window", "16", server+":"+benchPort))
	if err != nil {
		return 0, err
	}
	var report struct {
		Results []struct {
			Unit string
			P50  float64
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Results) != 1 {
		return 0, fmt.Errorf("pmemfs says %q: %v", out, err)
	}
	r := report.Results[0]
	if r.Unit == "s" {
		return r.P50 * 1e6, nil
	}
	return r.P50 / (1 << 20), nil
}

// perftest returns the same of perftest's program. Its clients do not wait for their server, which ends with the first client that fails, so
// both are tried again with more time between them.
func (o *options) perftest(t perf.Test) (v float64, err error) {
	for delay := 500 * time.Millisecond; delay < 10*time.Second; delay *= 2 {
		var e error
		if v, e = o.perftestOnce(t, delay); e == nil {
			return v, nil
		}
		err = errors.Join(err, e)
	}
	return 0, err
}

func (o *options) perftestOnce(t perf.Test, delay time.Duration) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	args := []string{"-R", "-F", "-s", fmt.Sprint(t.Size), "-n", fmt.Sprint(o.count(t))}
	peer := in(ctx, "A", "ib_"+t.Name, args...)
	var said bytes.Buffer
	peer.Stdout, peer.Stderr = &said, &said
	if err := peer.Start(); err != nil {
		return 0, err
	}
	defer func() {
		cancel()
		peer.Wait()
	}()
	time.Sleep(delay)
	out, err := output(in(ctx, "B", "ib_"+t.Name, append(args, server)...))
	if err != nil {
		cancel()
		peer.Wait()
		return 0, fmt.Errorf("%w; its server says %s", err, said.Bytes())
	}
	return parse(out, t)
}

func (o *options) count(t perf.Test) int {
	if (&perf.Result{Test: t}).Latency() {
		return o.iterations
	}
	return max(16, o.bytes/t.Size)
}

// parse takes the typical latency or the average bandwidth out of perftest's table:
//
//	#bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec] ...
//	#bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]
func parse(out string, t perf.Test) (float64, error) {
	column := 3
	if (&perf.Result{Test: t}).Latency() {
		column = 4
	}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) > column && f[0] == fmt.Sprint(t.Size) {
			return strconv.ParseFloat(f[column], 64)
		}
	}
	return 0, fmt.Errorf("no line of %d bytes in %q", t.Size, out)
}

// compareSendfile sends a file, and compares its rate with that of ib_write_bw with the same chunk. The receiver checks the content.
func (o *options) compareSendfile() (*series, error) {
	const chunk = 256 << 10
	dir, err := os.MkdirTemp("/dev/shm", "sendfile-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "source")
	content := bytes.Repeat([]byte("0123456789abcdef"), o.bytes/16)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return nil, err
	}
	inbox := filepath.Join(dir, "inbox")
	if err := os.Mkdir(inbox, 0o700); err != nil {
		return nil, err
	}
	stop, err := background("sendfile", "receive", "--provider", o.provider, "--listen", server+":"+sendPort, "--dir", inbox)
	if err != nil {
		return nil, err
	}
	defer stop()
	s := &series{Test: perf.Test{Name: perf.WriteBandwidth, Size: chunk}, label: "sendfile"}
	for range o.rounds {
		theirs, err := o.perftest(s.Test)
		if err != nil {
			return nil, err
		}
		ours, err := o.send(file)
		if err != nil {
			return nil, err
		}
		got, err := os.ReadFile(filepath.Join(inbox, "source"))
		if err != nil || !bytes.Equal(got, content) {
			return nil, errors.Join(err, errors.New("what has arrived is not what was sent"))
		}
		if err := os.Remove(filepath.Join(inbox, "source")); err != nil {
			return nil, err
		}
		s.add(theirs, ours)
	}
	return s, nil
}

// send returns the MiB/s of one transfer, as sendfile itself has them: without the start of the program and of the connection, with both
// checksums and until the file is durable.
func (o *options) send(file string) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := in(ctx, "B", "sendfile", "send", "--provider", o.provider, server+":"+sendPort, file)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args[2:], " "), err, out)
	}
	return parseRate(string(out))
}

// parseRate takes the rate at the end of "NAME 100 %  4.0 MiB of 4.0 MiB  7.1 MiB/s".
func parseRate(out string) (float64, error) {
	f := strings.Fields(out)
	if n := len(f); n >= 2 && strings.HasSuffix(f[n-1], "/s") {
		if v, err := strconv.ParseFloat(f[n-2], 64); err == nil {
			switch f[n-1] {
			case "KiB/s":
				return v / 1024, nil
			case "MiB/s":
				return v, nil
			case "GiB/s":
				return v * 1024, nil
			}
		}
	}
	return 0, fmt.Errorf("no rate in %q", out)
}
