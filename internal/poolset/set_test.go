package poolset

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	const text = `PMEMPOOLSET
# a pool of two parts
OPTION SINGLEHDR
2M /mnt/pmem0/part0 # the first
 1000kB	/mnt/pmem1/part1

AUTO /mnt/pmem2/part2
REPLICA host pool.set
REPLICA me@host.example:7470 dir/pool.set
REPLICA [fe80::1]:99 p
REPLICA fe80::1 p
REPLICA me@[::1] p`
	got, err := Parse(strings.NewReader(text), "x.set")
	if err != nil {
		t.Fatal(err)
	}
	want := &Set{
		File: "x.set",
		Parts: []Part{
			{Path: "/mnt/pmem0/part0", Size: 2 << 20, Line: 4},
			{Path: "/mnt/pmem1/part1", Size: 244 * 4096, Line: 5},
			{Path: "/mnt/pmem2/part2", Auto: true, Line: 7},
		},
		Replicas: []Replica{
			{Host: "host", Name: "pool.set", Line: 8},
			{User: "me", Host: "host.example", Port: 7470, Name: "dir/pool.set", Line: 9},
			{Host: "fe80::1", Port: 99, Name: "p", Line: 10},
			{Host: "fe80::1", Name: "p", Line: 11},
			{User: "me", Host: "::1", Name: "p", Line: 12},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.Size() != 2<<20+244*4096 {
		t.Errorf("Size %d", got.Size())
	}
	for i, s := range []string{"host", "me@host.example:7470", "[fe80::1]:99", "[fe80::1]", "me@[::1]"} {
		if got.Replicas[i].String() != s {
			t.Errorf("replica %d: %s, want %s", i, got.Replicas[i], s)
		}
	}
}

func TestSyntaxErrors(t *testing.T) {
	const head = "PMEMPOOLSET\n2M /a\n"
	for _, c := range []struct {
		text            string
		line            int
		found, expected string // parts of the texts
	}{
		{"", 1, "empty file", "PMEMPOOLSET"},
		{"PMEMPOOLSET", 1, "end of the file", "part"},
		{"PMEMPOOLSET \n2M /a\n", 1, `"PMEMPOOLSET "`, "whole first line"},
		{"# x\nPMEMPOOLSET\n", 1, "# x", "PMEMPOOLSET"},
		{"PMEMPOOLSET\n2M a\n", 2, `"a"`, "absolute"},
		{"PMEMPOOLSET\n2M /a/../b\n", 2, `"/a/../b"`, "without"},
		{"PMEMPOOLSET\n2M /a b\n", 2, `"2M /a b"`, "SIZE"},
		{"PMEMPOOLSET\n2M\n", 2, `"2M"`, "SIZE"},
		{"PMEMPOOLSET\n2X /a\n", 2, "2X", "number of bytes"},
		{"PMEMPOOLSET\n0 /a\n", 2, `"0"`, "at least 4096"},
		{"PMEMPOOLSET\n4095 /a\n", 2, `"4095"`, "at least 4096"},
		{"PMEMPOOLSET\n8192P /a\n", 2, `"8192P"`, "at most"},
		{"PMEMPOOLSET\n8000P /a\n8000P /b\n", 3, `"8000P"`, "in all parts"},
		{"PMEMPOOLSET\n20000P /a\n", 2, "64 bits", "number of bytes"},
		{head + "2M /a\n", 3, "second time", "line 2"},
		{head + "REPLICA\n2M /b\n", 3, "local replica", "not supported"},
		{head + "REPLICA host\n", 3, "1 words", "REPLICA [user@]host"},
		{head + "REPLICA h p\n2M /b\n", 4, "part after", "before"},
		{head + "REPLICA h p\nREPLICA x@h p\n", 4, "second time", "line 3"},
		{head + "REPLICA h /p\n", 3, "relative", "REPLICA"},
		{head + "REPLICA h ../p\n", 3, "relative", "REPLICA"},
		{head + "REPLICA h:0 p\n", 3, "port", "REPLICA"},
		{head + "REPLICA h:65536 p\n", 3, "port", "REPLICA"},
		{head + "REPLICA h: p\n", 3, "port", "REPLICA"},
		{head + "REPLICA @h p\n", 3, "user", "REPLICA"},
		{head + "REPLICA a@ p\n", 3, "not a host", "REPLICA"},
		{head + "REPLICA -oProxyCommand=x p\n", 3, "not a host", "REPLICA"},
		{head + "REPLICA [::1 p\n", 3, "brackets", "REPLICA"},
		{head + "REPLICA [::1]x p\n", 3, "brackets", "REPLICA"},
		{head + "REPLICA [h]:1 p\n", 3, "brackets", "REPLICA"},
		{head + "REPLICA 1:2:3 p\n", 3, "colons", "REPLICA"},
		{"PMEMPOOLSET\nREPLICA h p\n", 2, "REPLICA", "part"},
		{head + "OPTION NOHDRS\n", 3, "OPTION NOHDRS", "SINGLEHDR"},
		{head + "OPTION\n", 3, "OPTION", "SINGLEHDR"},
		{head + strings.Repeat("x", maxLine+1), 3, "longer line", "per line"},
	} {
		_, err := Parse(strings.NewReader(c.text), "f.set")
		var se *SyntaxError
		if !errors.As(err, &se) {
			t.Errorf("%.60q: %v", c.text, err)
			continue
		}
		if se.File != "f.set" || se.Line != c.line || !strings.Contains(se.Found, c.found) || !strings.Contains(se.Expected, c.expected) {
			t.Errorf("%.60q: %v", c.text, err)
		}
	}
}

func TestParseRefusesAHugeFile(t *testing.T) {
	text := "PMEMPOOLSET\n2M /a\n" + strings.Repeat("#\n", maxFile)
	var se *SyntaxError
	if _, err := Parse(strings.NewReader(text), "f"); !errors.As(err, &se) || !strings.Contains(se.Expected, "bytes") {
		t.Errorf("%v", err)
	}
}

func TestParseFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.set")
	if _, err := ParseFile(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("PMEMPOOLSET\n2M /a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := ParseFile(path); err != nil || s.File != path {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]uint64{
		"0": 0, "17": 17, "17B": 17, "1K": 1024, "1KiB": 1024, "1kB": 1000, "3M": 3 << 20, "3MB": 3e6, "2GiB": 2 << 30,
		"2GB": 2e9, "1T": 1 << 40, "1TB": 1e12, "16383P": 16383 << 50, "18446744073709551615": 1<<64 - 1,
	} {
		if got, err := ParseSize(s); err != nil || got != want {
			t.Errorf("%s: %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "M", "-1", "+1", "1.5G", "1k", "1KB", "1mb", "1 M", "0x10", "1iB", "1MM", "16384P", "18446744073709551616", "AUTO"} {
		if got, err := ParseSize(s); err == nil {
			t.Errorf("%q: %d, want an error", s, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("PMEMPOOLSET\n2M /a\nREPLICA me@[::1]:7 b/c # d\nOPTION SINGLEHDR\n")
	f.Add("PMEMPOOLSET\nAUTO /a\n10GB /b/c\nREPLICA fe80::1 x\n")
	f.Add("PMEMPOOLSET\nREPLICA\n")
	f.Fuzz(func(t *testing.T, text string) {
		set, err := Parse(strings.NewReader(text), "f")
		if err != nil {
			var se *SyntaxError
			if !errors.As(err, &se) || se.Line < 1 || se.Found == "" || se.Expected == "" {
				t.Fatalf("%v", err)
			}
			return
		}
		if len(set.Parts) == 0 || set.Size() > 1<<63-1 {
			t.Fatalf("%+v", set)
		}
		for _, p := range set.Parts {
			if !filepath.IsAbs(p.Path) || p.Size%BlockSize != 0 || p.Auto != (p.Size == 0) {
				t.Fatalf("%+v", p)
			}
		}
		for _, r := range set.Replicas {
			again, err := parseReplica(r.String(), r.Name)
			if again.Line = r.Line; err != nil || again != r {
				t.Fatalf("%+v became %+v, %v", r, again, err)
			}
		}
	})
}

func FuzzParseSize(f *testing.F) {
	f.Add("64MiB")
	f.Add("18446744073709551615")
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseSize(s)
		if err == nil && n > 0 && !strings.ContainsAny(s[:1], "0123456789") {
			t.Fatalf("%q is %d", s, n)
		}
	})
}
