package integration

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/pmemfs/pmemfs/integration/stage"
)

// TestImages: qemu-img, mkfs.ext4 and dd work on images with O_DIRECT, from 512 bytes on; e2fsck and qemu-img check find
// nothing, and every way to the content shows the same bytes. The replica has them as well.
func TestImages(t *testing.T) {
	t.Parallel()
	needs(t, "qemu-utils", "qemu-img")
	needs(t, "e2fsprogs", "mkfs.ext4", "e2fsck", "debugfs")
	r := newRig(t, setup{size: "192M"})
	content := r.Path("content")
	r.must(os.Mkdir(content, 0o755))
	want := make([]byte, scaled(8)<<20+123)
	rnd := rand.NewChaCha8([32]byte{1})
	_, _ = rnd.Read(want)
	r.must(os.WriteFile(filepath.Join(content, "file"), want, 0o644))
	raw, qcow, back := r.path("disk.raw"), r.path("disk.qcow2"), r.path("back.raw")
	check := func() {
		t.Helper()
		r.runAll([][]string{
			{"e2fsck", "-f", "-n", raw},
			{"e2fsck", "-f", "-n", back},
			{"qemu-img", "check", "-T", "none", qcow},
			{"qemu-img", "compare", "-T", "none", raw, qcow},
			{"cmp", raw, back},
		})
	}
	r.runAll([][]string{
		{"qemu-img", "create", "-q", "-f", "raw", raw, "48M"},
		{"mkfs.ext4", "-q", "-D", "-F", "-d", content, raw},
		{"qemu-img", "convert", "-q", "-T", "none", "-t", "none", "-f", "raw", "-O", "qcow2", raw, qcow},
		{"qemu-img", "convert", "-q", "-T", "none", "-t", "none", "-f", "qcow2", "-O", "raw", qcow, back},
	})
	check()
	r.runAll([][]string{
		// The last 512 bytes of an ext4 of 48 MiB are free.
		{"dd", "if=" + filepath.Join(content, "file"), "of=" + raw, "bs=512", "count=1", "seek=98303", "oflag=direct", "conv=notrunc,fsync"},
		{"dd", "if=" + raw, "of=" + r.Path("sector"), "bs=512", "count=1", "skip=98303", "iflag=direct"},
		{"dd", "if=" + r.Path("sector"), "of=" + back, "bs=512", "count=1", "seek=98303", "conv=notrunc,fsync"},
		{"qemu-io", "-t", "none", "-f", "qcow2", "-c", "write -s " + r.Path("sector") + " 50331136 512", "-c", "flush", qcow},
		{"qemu-io", "-t", "none", "-f", "raw", "-c", "flush", raw},
	})
	check()
	r.must(r.pool.KillDaemon())
	replica := r.takeOver()
	check()
	r.runAll([][]string{{"debugfs", "-R", "dump file " + r.Path("out"), raw}})
	got, err := os.ReadFile(r.Path("out"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file inside the image: %d bytes, want %d, %v", len(got), len(want), err)
	}
	r.finish(replica)
}

// runAll runs commands, each of which must succeed.
func (r *rig) runAll(commands [][]string) {
	r.t.Helper()
	for _, c := range commands {
		_, err := stage.Run(c[0], c[1:]...)
		r.must(err)
	}
}
