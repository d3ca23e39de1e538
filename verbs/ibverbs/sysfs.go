package ibverbs

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

var errNoDevice = errors.New(`this machine has no RDMA device: load the driver of its adapter, make a software device of a network interface ` +
	`("rdma link add rxe0 type rxe netdev eth0"), or use provider = "iwarp", which needs none`)

// sysfs is /sys/class/infiniband.
type sysfs struct{ fs.FS }

// devices are the names of the RDMA devices, sorted.
func (s sysfs) devices() ([]string, error) {
	entries, err := fs.ReadDir(s, ".")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if len(names) == 0 {
		return nil, errNoDevice
	}
	return names, nil
}

func (s sysfs) text(elem ...string) (string, error) {
	b, err := fs.ReadFile(s, strings.Join(elem, "/"))
	return strings.TrimSpace(string(b)), err
}

// ports are the numbers of the ports of a device, in order.
func (s sysfs) ports(device string) ([]int, error) {
	entries, err := fs.ReadDir(s, device+"/ports")
	if err != nil {
		return nil, err
	}
	var ports []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && n > 0 {
			ports = append(ports, n)
		}
	}
	slices.Sort(ports)
	return ports, nil
}

// activePort is the first port of a device that is up.
func (s sysfs) activePort(device string) (int, error) {
	ports, err := s.ports(device)
	if err != nil {
		return 0, err
	}
	for _, p := range ports {
		if state, err := s.text(device, "ports", strconv.Itoa(p), "state"); err == nil && strings.HasSuffix(state, "ACTIVE") && !strings.HasSuffix(state, "INACTIVE") {
			return p, nil
		}
	}
	return 0, fmt.Errorf("no port of the RDMA device %s is active: bring up its network interface (%q shows the state)", device, "rdma link")
}

// firstActive is the first device with a port that is up.
func (s sysfs) firstActive() (string, error) {
	names, err := s.devices()
	if err != nil {
		return "", err
	}
	for _, n := range names {
		if _, err := s.activePort(n); err == nil {
			return n, nil
		}
	}
	return "", fmt.Errorf("no RDMA device has an active port (there are: %s): bring up a network interface", strings.Join(names, ", "))
}

// check reports a device that is not there.
func (s sysfs) check(device string) error {
	names, err := s.devices()
	if err != nil {
		return err
	}
	if !slices.Contains(names, device) {
		return fmt.Errorf("there is no RDMA device %q: name one of %s, or leave the name out", device, strings.Join(names, ", "))
	}
	return nil
}

// software reports whether a device has no hardware below it.
func (s sysfs) software(device string) bool {
	_, err := fs.Stat(s, device+"/device")
	return err != nil
}
