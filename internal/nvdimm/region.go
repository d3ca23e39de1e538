package nvdimm

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Domain is the persistence domain of a region: the place up to which a store must have come to survive a loss of power.
type Domain string

const (
	Unknown          Domain = ""                  // the firmware does not say
	MemoryController Domain = "memory_controller" // ADR: cache lines must be written back
	CPUCache         Domain = "cpu_cache"         // eADR: the CPU caches are written back when the power fails
)

// Region is a region of the NVDIMM bus.
type Region struct {
	Name string // "region0"
	// Persistent is false for memory that loses its content with the power, and for memory of a hypervisor that keeps it only
	// after a request (virtio-pmem).
	Persistent bool
	Domain     Domain
}

// virtio is the name that the driver of virtio-pmem gives to its bus.
const virtio = "virtio-pmem"

// Regions are those that hold the file or Device DAX at path; of a file the block devices below its file system. There is none where path is
// not on the NVDIMM bus.
func (s Sysfs) Regions(path string) ([]Region, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	st := fi.Sys().(*syscall.Stat_t)
	kind, dev := "block", st.Dev
	if fi.Mode()&os.ModeCharDevice != 0 {
		kind, dev = "char", st.Rdev
	}
	regions, err := s.regions(kind, dev)
	if err != nil {
		return nil, fmt.Errorf("persistent memory below %s: %w", path, err)
	}
	return regions, nil
}

func (s Sysfs) regions(kind string, dev uint64) ([]Region, error) {
	dir, ok, err := s.dir(kind, dev)
	if err != nil || !ok {
		return nil, err
	}
	return s.regionsAbove(dir)
}

// regionsAbove looks for the region that a device is in, or for those of the devices that a mapped device (dm) is made of.
func (s Sysfs) regionsAbove(dir string) ([]Region, error) {
	slaves, err := filepath.Glob(filepath.Join(dir, "slaves", "*"))
	if err != nil {
		return nil, err
	}
	var all []Region
	for _, slave := range slaves {
		real, err := filepath.EvalSymlinks(slave)
		if err != nil {
			return nil, err
		}
		regions, err := s.regionsAbove(real)
		if err != nil {
			return nil, err
		}
		all = append(all, regions...)
	}
	if len(slaves) > 0 {
		return all, nil
	}
	r, ok, err := regionOf(dir)
	if err != nil || !ok {
		return nil, err
	}
	return []Region{r}, nil
}

// regionOf goes up from dir to the directory of a region, which has the attribute devtype.
func regionOf(dir string) (Region, bool, error) {
	for ; dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		devtype, err := attr(dir, "devtype")
		if err != nil {
			return Region{}, false, err
		}
		if devtype != "nd_pmem" && devtype != "nd_volatile" {
			continue
		}
		domain, err := attr(dir, "persistence_domain")
		if err != nil {
			return Region{}, false, err
		}
		provider, err := attr(filepath.Dir(dir), "provider")
		if err != nil {
			return Region{}, false, err
		}
		return Region{
			Name: filepath.Base(dir), Persistent: devtype == "nd_pmem" && provider != virtio, Domain: Domain(domain),
		}, true, nil
	}
	return Region{}, false, nil
}
