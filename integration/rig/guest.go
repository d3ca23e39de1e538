package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	nvdimmSize  = 48 << 20 // full copies of pools are a good part of what jobs do
	memoryMiB   = 1024
	bootTimeout = 2 * time.Minute // from the start of qemu to the first run
)

// share is what all guests see of the host: WORK is read and written as /host, programs and source only read.
type share struct{ work, programs, source string }

// machine is one guest. Its NVDIMMs are files, so they outlive it.
type machine struct {
	boot, sides string // sides are AB for both in one guest, or A or B
	dir         string // of its files, below share.work
	cpus        int
	qemu        []string // the words that start it
	kernel      string   // vmlinux
	image       string   // initramfs
	share       share

	cmd  *exec.Cmd
	done chan struct{} // closed when qemu has ended
}

// power starts qemu.
func (m *machine) power(ctx context.Context) error {
	if err := m.makeNVDIMMs(); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(m.dir, "qemu"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	m.cmd = exec.CommandContext(ctx, m.qemu[0], slices.Concat(m.qemu[1:], m.arguments())...)
	m.cmd.Stdout, m.cmd.Stderr = log, log
	if err := m.cmd.Start(); err != nil {
		return &UnavailableError{err}
	}
	m.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait() // what the runs have left says how it went
		close(done)
	}(m.cmd, m.done)
	return nil
}

// cut ends qemu at once: a loss of power of the guest.
func (m *machine) cut() {
	_ = m.cmd.Process.Kill()
	<-m.done
}

// up reports whether the guest has come as far as its first run.
func (m *machine) up() bool {
	if m.cmd == nil || m.ended() {
		return false
	}
	_, err := os.Stat(m.path("ready"))
	return err == nil
}

func (m *machine) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *machine) nvdimm(i int) string { return m.path(fmt.Sprintf("nvdimm%d", i)) }

func (m *machine) makeNVDIMMs() error {
	for i := range 2 * len(m.sides) {
		f, err := os.OpenFile(m.nvdimm(i), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return err
		}
		if err := f.Truncate(nvdimmSize); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) arguments() []string {
	commandLine := fmt.Sprintf("console=ttyS0 quiet panic=-1 oops=panic mitigations=off no5lvl init_on_alloc=0 audit=0 lsm=capability no_timer_check tsc=reliable cryptomgr.notests random.trust_cpu=on rig.boot=%s rig.sides=%s",
		m.boot, m.sides)
	args := []string{
		// Without ERMS, with which kernel, C library and Go copy by an instruction that is emulated byte by byte.
		"-machine", "q35,nvdimm=on,nvdimm-persistence=mem-ctrl", "-accel", "tcg,thread=multi", "-cpu", "max,-erms", "-smp", strconv.Itoa(m.cpus),
		"-m", fmt.Sprintf("%d,slots=4,maxmem=16G", memoryMiB), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-monitor", "none",
		"-serial", "file:" + m.path("console"), "-kernel", m.kernel, "-initrd", m.image, "-append", commandLine,
	}
	shared := func(tag, dir, options string) {
		args = append(args, "-fsdev", "local,id="+tag+",path="+dir+",security_model=none,multidevs=remap"+options,
			"-device", "virtio-9p-pci,fsdev="+tag+",mount_tag="+tag)
	}
	shared("host", m.share.work, "")
	shared("programs", m.share.programs, ",readonly=on")
	shared("source", m.share.source, ",readonly=on")
	for i := range 2 * len(m.sides) {
		args = append(args, "-object", fmt.Sprintf("memory-backend-file,id=memory%d,share=on,mem-path=%s,size=%d", i, m.nvdimm(i), nvdimmSize),
			"-device", fmt.Sprintf("nvdimm,id=nvdimm%d,memdev=memory%d", i, i))
	}
	return append(args, m.network()...)
}

// network connects two guests by two datagram sockets, which need no ports and no order of starting.
func (m *machine) network() []string {
	if m.sides == "AB" {
		return nil
	}
	socket := func(side string) string { return filepath.Join(m.share.work, m.boot, "net."+side) }
	peer := strings.Trim("AB", m.sides)
	_ = os.Remove(socket(m.sides)) // of an earlier life
	return []string{
		"-netdev", fmt.Sprintf("dgram,id=net,local.type=unix,local.path=%s,remote.type=unix,remote.path=%s", socket(m.sides), socket(peer)),
		"-device", "virtio-net-pci,netdev=net,mac=52:54:00:00:00:0" + strings.ToLower(m.sides),
	}
}
