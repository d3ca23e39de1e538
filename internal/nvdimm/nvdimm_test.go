package nvdimm

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// tree is a sysfs with what a test puts there.
type tree struct {
	t    *testing.T
	root string
}

func newTree(t *testing.T) tree { return tree{t, t.TempDir()} }

func (s tree) file(path, text string) {
	s.t.Helper()
	path = filepath.Join(s.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s tree) link(path, to string) {
	s.t.Helper()
	path, to = filepath.Join(s.root, path), filepath.Join(s.root, to)
	if err := os.MkdirAll(to, 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Symlink(to, path); err != nil {
		s.t.Fatal(err)
	}
}

// region puts a region there whose directory is returned.
func (s tree) region(bus, name, devtype, domain, provider string) string {
	dir := filepath.Join("devices/platform", bus, name)
	s.file(dir+"/devtype", devtype)
	if domain != "" {
		s.file(dir+"/persistence_domain", domain)
	}
	s.file(filepath.Dir(dir)+"/provider", provider)
	return dir
}

func (s tree) sysfs() Sysfs { return Sysfs(s.root) }

func stat(t *testing.T, path string) (os.FileInfo, *syscall.Stat_t) {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi, fi.Sys().(*syscall.Stat_t)
}

// devlink is the link that leads from a device number to the directory of the device.
func devlink(kind string, dev uint64) string {
	return fmt.Sprintf("dev/%s/%d:%d", kind, unix.Major(dev), unix.Minor(dev))
}

// nullDevice is a character device that every machine has, standing for a Device DAX.
const nullDevice = "/dev/null"

func TestDevice(t *testing.T) {
	fi, st := stat(t, nullDevice)
	s := newTree(t)
	if _, ok, err := s.sysfs().Device(fi); ok || err != nil {
		t.Errorf("a device that sysfs does not have: %v, %v", ok, err)
	}
	dir := s.region("ndbus0", "region1", "nd_pmem", "memory_controller", "ACPI.NFIT") + "/dax1.0/dax1.0"
	s.link(devlink("char", st.Rdev), dir)
	if _, ok, err := s.sysfs().Device(fi); ok || err != nil {
		t.Errorf("a device of no subsystem: %v, %v", ok, err)
	}
	s.link(dir+"/subsystem", "bus/dax")
	if _, ok, err := s.sysfs().Device(fi); ok || err == nil {
		t.Errorf("a device without size: %v, %v", ok, err)
	}
	s.file(dir+"/size", "266338304")
	s.file(dir+"/align", "3")
	if _, _, err := s.sysfs().Device(fi); err == nil {
		t.Error("an alignment of 3 was taken")
	}
	s.file(dir+"/align", "2097152")
	d, ok, err := s.sysfs().Device(fi)
	if want := (Device{"dax1.0", 266338304, 2 << 20, true}); !ok || err != nil || d != want {
		t.Errorf("%+v, %v, %v, want %+v", d, ok, err, want)
	}
	file, _ := stat(t, t.TempDir())
	if _, ok, err := s.sysfs().Device(file); ok || err != nil {
		t.Errorf("a directory: %v, %v", ok, err)
	}
}

// Memory that the firmware set aside (hmem), that of a volatile region, and that of a hypervisor which must be asked to keep it do not count.
func TestDevice_NotPersistent(t *testing.T) {
	fi, st := stat(t, nullDevice)
	for name, region := range map[string]func(tree) string{
		"hmem":     func(tree) string { return "devices/platform/hmem.0" },
		"volatile": func(s tree) string { return s.region("ndbus0", "region0", "nd_volatile", "", "ACPI.NFIT") },
		"virtio":   func(s tree) string { return s.region("ndbus0", "region0", "nd_pmem", "", virtio) },
	} {
		s := newTree(t)
		dir := region(s) + "/dax0.0"
		s.link(devlink("char", st.Rdev), dir)
		s.link(dir+"/subsystem", "bus/dax")
		s.file(dir+"/size", "4194304")
		s.file(dir+"/align", "4096")
		if d, ok, err := s.sysfs().Device(fi); !ok || err != nil || d.Persistent {
			t.Errorf("%s: %+v, %v, %v", name, d, ok, err)
		}
	}
}

func TestRegions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, st := stat(t, path)
	look := func(s tree, want ...Region) {
		t.Helper()
		got, err := s.sysfs().Regions(path)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	s := newTree(t)
	look(s)
	s.link(devlink("block", st.Dev), "devices/pci0000:00/nvme0n1")
	look(s)

	s = newTree(t)
	s.link(devlink("block", st.Dev), s.region("ndbus0", "region0", "nd_pmem", "cpu_cache", "ACPI.NFIT")+"/pfn0.0/block/pmem0/pmem0p1")
	look(s, Region{"region0", true, CPUCache})

	s = newTree(t)
	s.link(devlink("block", st.Dev), s.region("ndbus0", "region0", "nd_pmem", "", "e820")+"/namespace0.0/block/pmem0")
	look(s, Region{"region0", true, Unknown})

	// A device mapper over two of them.
	s = newTree(t)
	s.link(devlink("block", st.Dev), "devices/virtual/block/dm-0")
	s.link("devices/virtual/block/dm-0/slaves/pmem0", s.region("ndbus0", "region0", "nd_pmem", "cpu_cache", "ACPI.NFIT")+"/block/pmem0")
	s.link("devices/virtual/block/dm-0/slaves/pmem1", s.region("ndbus0", "region1", "nd_volatile", "memory_controller", "ACPI.NFIT")+"/block/pmem1")
	look(s, Region{"region0", true, CPUCache}, Region{"region1", false, MemoryController})

	if _, err := s.sysfs().Regions(path + ".none"); !os.IsNotExist(err) {
		t.Errorf("a path that is not there: %v", err)
	}
}
