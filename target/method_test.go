package target

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs"
	"github.com/pmemfs/pmemfs/verbs/verbstest"
)

// Rows of (offered, wanted, decided). A device that is not CPUPlaced stands for hardware.
func TestChoice(t *testing.T) {
	gpspm, apm, flush := wire.MethodSet(wire.GPSPM), wire.MethodSet(wire.APM), wire.MethodSet(wire.FLUSH)
	basic := wire.MethodSet(wire.GPSPM, wire.APM)
	soft := verbs.Caps{CPUPlaced: true}
	softNative := verbs.Caps{CPUPlaced: true, Flush: true, AtomicWrite: true}
	nic := verbs.Caps{}
	nicNative := verbs.Caps{Flush: true, AtomicWrite: true}
	yes := func(string, verbs.Caps) (bool, string) { return true, "" }
	no := func(string, verbs.Caps) (bool, string) { return false, "no eADR is declared" }
	for _, c := range []struct {
		name    string
		claimed wire.Methods
		allowed wire.Methods
		caps    verbs.Caps
		promise pmem.Promise
		inbound func(string, verbs.Caps) (bool, string)
		noFlush error
		want    wire.Method // 0: refused
		why     []string    // pieces of the reasons
	}{
		{"software, disk", basic, 0, soft, pmem.PageCache, yes, nil, wire.GPSPM, []string{"APM: ", "ordinary file"}},
		{"software, memory", basic, 0, soft, pmem.Volatile, nil, nil, wire.GPSPM, []string{"APM: ", "fewer round trips"}},
		{"software, pmem, eADR", basic, 0, soft, pmem.Persistent, yes, nil, wire.GPSPM, []string{"APM: ", "fewer round trips"}},
		{"software, pmem, eADR, APM forced", apm, 0, soft, pmem.Persistent, yes, nil, wire.APM, nil},
		{"software, pmem, APM forced", apm, 0, soft, pmem.Persistent, no, nil, 0, []string{"APM: ", "no eADR is declared"}},
		{"nothing declared, APM forced", apm, 0, nic, pmem.Persistent, nil, nil, 0, []string{"nothing declares"}},
		{"disk, APM forced", apm, 0, soft, pmem.PageCache, yes, nil, 0, []string{"ordinary file"}},
		{"memory, APM forced", apm, 0, soft, pmem.Volatile, no, nil, wire.APM, nil},
		{"memory, FLUSH forced", flush, 0, softNative, pmem.Volatile, yes, nil, 0, []string{"not in persistent memory"}},
		{"disk, FLUSH forced", flush, 0, softNative, pmem.PageCache, yes, nil, 0, []string{"not in persistent memory"}},
		{"software with FLUSH, forced", flush, 0, softNative, pmem.Persistent, no, nil, wire.FLUSH, nil},
		{"software with FLUSH, free", wire.AllMethods, 0, softNative, pmem.Persistent, no, nil, wire.GPSPM, []string{"FLUSH: ", "fewer round trips", "APM: no eADR"}},
		{"hardware", wire.AllMethods, 0, nic, pmem.Persistent, no, nil, wire.GPSPM, []string{"APM: no eADR", "FLUSH: device dev of the target cannot"}},
		{"hardware, declared", wire.AllMethods, 0, nic, pmem.Persistent, yes, nil, wire.APM, []string{"GPSPM: APM is preferred", "FLUSH: device"}},
		{"hardware with FLUSH", wire.AllMethods, 0, nicNative, pmem.Persistent, yes, nil, wire.FLUSH, []string{"GPSPM: FLUSH is preferred", "APM: FLUSH is preferred"}},
		{"hardware with FLUSH only", wire.AllMethods, 0, verbs.Caps{Flush: true}, pmem.Persistent, no, nil, wire.GPSPM, []string{"ATOMIC_WRITE"}},
		{"hardware with FLUSH, initiator without", basic, 0, nicNative, pmem.Persistent, yes, nil, wire.APM, nil},
		{"not registered for FLUSH", wire.AllMethods, 0, nicNative, pmem.Persistent, no, errors.New("EINVAL"), wire.GPSPM, []string{"FLUSH: ", "EINVAL"}},
		{"not registered for FLUSH, forced", flush, 0, nicNative, pmem.Persistent, no, errors.New("EINVAL"), 0, []string{"FLUSH: ", "EINVAL"}},
		{"only GPSPM is allowed", wire.AllMethods, gpspm, nicNative, pmem.Persistent, yes, nil, wire.GPSPM, []string{"APM: not among", "FLUSH: not among"}},
		{"what is forced is not allowed", gpspm, apm, soft, pmem.Persistent, yes, nil, 0, []string{"GPSPM: not among", "target.toml"}},
		{"only APM is allowed", basic, apm, soft, pmem.Volatile, nil, nil, wire.APM, []string{"GPSPM: not among"}},
		{"nothing claimed", 0, 0, soft, pmem.Persistent, yes, nil, 0, []string{"no method is claimed"}},
		{"a method of the future", 1 << 4, 0, soft, pmem.Persistent, yes, nil, 0, []string{"no method is claimed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ch := choice{Persistency{c.allowed, c.inbound, 0}, c.claimed, "dev", c.caps, c.promise, c.noFlush, false}
			m, why, err := ch.choose()
			if m != c.want || (err != nil) != (c.want == 0) {
				t.Fatalf("%v (%s), %v; want %v", m, why, err, c.want)
			}
			if err != nil {
				if asRefusal(err).Status != wire.StatusMethod {
					t.Errorf("refused with %v", err)
				}
				why = err.Error()
			}
			if strings.Contains(why, "not claimed") {
				t.Errorf("%q tells of what was not asked for", why)
			}
			for _, w := range c.why {
				if !strings.Contains(why, w) {
					t.Errorf("%q lacks %q", why, w)
				}
			}
		})
	}
}

// noting is a device that notes the rights of what it registers, and can refuse those for FLUSH.
type noting struct {
	verbs.Device
	refuse bool
	rights []verbs.Access
}

func (d *noting) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return notingPD{pd, d}, err
}

type notingPD struct {
	verbs.PD
	dev *noting
}

func (p notingPD) RegisterMR(b []byte, a verbs.Access) (verbs.MR, error) {
	if p.dev.refuse && a&verbs.RemoteFlush != 0 {
		return nil, errors.New("the memory is not persistent")
	}
	p.dev.rights = append(p.dev.rights, a)
	return p.PD.RegisterMR(b, a)
}

// asPersistent is memory that passes for persistent.
type asPersistent struct{ pmem.Region }

func (asPersistent) Promise() pmem.Promise { return pmem.Persistent }

func TestGrant_Method(t *testing.T) {
	fabric := verbstest.NewFabric(verbstest.Auto)
	fabric.Native()
	for _, c := range []struct {
		name    string
		refuse  bool
		claimed wire.Methods
		want    wire.Method
		rights  verbs.Access
	}{
		{"FLUSH", false, wire.MethodSet(wire.FLUSH), wire.FLUSH, verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteFlush},
		{"GPSPM", false, wire.AllMethods, wire.GPSPM, verbs.RemoteWrite | verbs.RemoteRead},
		{"FLUSH is refused by the device", true, wire.MethodSet(wire.FLUSH), 0, 0},
		{"FLUSH is refused by the device, APM will do", true, wire.MethodSet(wire.FLUSH, wire.APM), wire.APM, verbs.RemoteWrite | verbs.RemoteRead},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Persistency{Inbound: func(string, verbs.Caps) (bool, string) { return true, "" }}
			dev := &noting{Device: fabric.Device(c.name), refuse: c.refuse}
			g, err := newGrant(dev, asPersistent{pmem.NewHeap(1 << 20)}, 7, Register{1, 1, c.claimed}, p, quiet())
			if c.want == 0 {
				if !errors.Is(err, wire.StatusMethod) || !strings.Contains(err.Error(), "the memory is not persistent") {
					t.Fatalf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			// The scratch area is the second registration.
			if w := g.wire("x:1"); w.Method != c.want || !slices.Equal(dev.rights, []verbs.Access{c.rights, verbs.RemoteWrite | verbs.RemoteRead}) {
				t.Errorf("grant %+v, registered with %b", w, dev.rights)
			}
			if err := g.end(0); err != nil {
				t.Error(err)
			}
		})
	}
}
