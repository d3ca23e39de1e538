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
	limit     = time.Minute // of one run of a program; the clock of a guest can be fast, and perftest hangs where siw loses its first request
	window    = 16          // work requests in flight of a bandwidth test
)

// processor is that of a side. Both polling on one of them would wait for each other by time slices.
var processor = map[string]string{"A": "0", "B": "1"}

// in makes a command that runs in the network and on the processor of a side.
//
// A Go program would take its one processor for a machine with one, and give the right to run Go code away in each call of C that takes longer than
// 20 us, as a post to rxe does. So it is told that there are two, as on any machine with an RDMA device.
func in(ctx context.Context, side, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "taskset", append([]string{"-c", processor[side], "nsenter", "--net=/run/netns/" + side, program}, args...)...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=2")
	return cmd
}

// words are the program of such a command and its arguments.
func words(cmd *exec.Cmd) string { return strings.Join(cmd.Args[5:], " ") }

// output runs a command and returns what it prints.
func output(cmd *exec.Cmd) (string, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s%s", words(cmd), err, out, stderr.Bytes())
	}
	return string(out), nil
}

// startServer starts `pmemfs bench fabric` on side A.
func startServer(provider string) (stop func(), err error) {
	return background("pmemfs", "bench", "fabric", "--provider", provider, "--listen", server+":"+benchPort)
}

// background starts a program on side A that says that it listens. What else it says is not printed: the client's failure is.
func background(program string, args ...string) (stop func(), err error) {
	cmd := in(context.Background(), "A", program, args...)
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

// pmemfs measures one round, of bandwidth as many bytes as one round of perftest moves.
func (o *options) pmemfs(t perf.Test) (figure, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	args := []string{"bench", "fabric", "--provider", o.provider, "--json", "--only", t.Name, "--size", fmt.Sprint(t.Size),
		"--iterations", fmt.Sprint(o.iterations), "--time", "1ns", "--window", fmt.Sprint(window)}
	if (&perf.Result{Test: t}).Latency() {
		args = append(args, "--busy")
	}
	out, err := output(in(ctx, "B", "pmemfs", append(args, server+":"+benchPort)...))
	if err != nil {
		return figure{}, err
	}
	var report struct {
		Results []struct {
			Unit     string
			P10, P50 float64
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Results) != 1 {
		return figure{}, fmt.Errorf("pmemfs says %q: %v", out, err)
	}
	r, scale := report.Results[0], 1.0/(1<<20)
	if r.Unit == "s" {
		scale = 1e6
	}
	return figure{r.P10 * scale, r.P50 * scale}, nil
}

// perftest returns the same of perftest's program. Its clients do not wait for their server, which ends with the first client that fails, so
// both are tried again with more time between them. So they are where siw has lost their first request.
func (o *options) perftest(t perf.Test) (f figure, err error) {
	for delay := 500 * time.Millisecond; delay < 10*time.Second; delay *= 2 {
		var e error
		if f, e = o.perftestOnce(t, delay); e == nil {
			return f, nil
		}
		err = errors.Join(err, e)
	}
	return figure{}, err
}

func (o *options) perftestOnce(t perf.Test, delay time.Duration) (figure, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	args := append([]string{"-R", "-F", "-s", fmt.Sprint(t.Size)}, o.count(t)...)
	peer := in(ctx, "A", "ib_"+t.Name, args...)
	var said bytes.Buffer
	peer.Stdout, peer.Stderr = &said, &said
	if err := peer.Start(); err != nil {
		return figure{}, err
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
		return figure{}, fmt.Errorf("%w; its server says %s", err, said.Bytes())
	}
	if (&perf.Result{Test: t}).Latency() {
		return parseTrips(out)
	}
	return parseRow(out, t)
}

// count are the flags that say how much is measured: round trips, all of which are printed, or work requests with the window of pmemfs.
func (o *options) count(t perf.Test) []string {
	if (&perf.Result{Test: t}).Latency() {
		return []string{"-H", "-n", fmt.Sprint(o.iterations)}
	}
	return []string{"-t", fmt.Sprint(window), "-n", fmt.Sprint(max(window, perf.RoundBytes/t.Size))}
}

// parseTrips takes the times out of perftest's histogram: lines "NUMBER, us".
func parseTrips(out string) (figure, error) {
	var times []float64
	for line := range strings.Lines(out) {
		number, time, ok := strings.Cut(strings.TrimSpace(line), ", ")
		if _, err := strconv.Atoi(number); !ok || err != nil {
			continue
		}
		us, err := strconv.ParseFloat(time, 64)
		if err != nil {
			continue
		}
		times = append(times, us)
	}
	if len(times) == 0 {
		return figure{}, fmt.Errorf("no times in %q", out)
	}
	return figure{percentile(times, 10), percentile(times, 50)}, nil
}

// parseRow takes the average bandwidth out of perftest's table:
//
//	#bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]
func parseRow(out string, t perf.Test) (figure, error) {
	const average = 3
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > average && f[0] == fmt.Sprint(t.Size) {
			rate, err := strconv.ParseFloat(f[average], 64)
			return figure{p50: rate}, err
		}
	}
	return figure{}, fmt.Errorf("no line of %d bytes in %q", t.Size, out)
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
		s.add(theirs.p50, ours)
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
		return 0, fmt.Errorf("%s: %w: %s", words(cmd), err, out)
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
