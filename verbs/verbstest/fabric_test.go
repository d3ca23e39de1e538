package verbstest

import (
	"testing"

	"github.com/pmemfs/pmemfs/verbs"
)

func TestFabric(t *testing.T) {
	for name, set := range map[string]func(*Fabric){"Plain": func(*Fabric) {}, "Native": func(f *Fabric) { f.Hardware(); f.Native() }} {
		t.Run(name, func(t *testing.T) {
			TestProvider(t, func(testing.TB) (verbs.Device, verbs.Device, string) {
				f := NewFabric(Auto)
				set(f)
				return f.Device("a"), f.Device("b"), "b:0"
			})
		})
	}
}

// stepped makes a linked pair on a fabric that is driven by steps.
func stepped(t *testing.T) (*Fabric, *side, *side) {
	f := NewFabric(Stepped)
	a, b := newSide(t, f.Device("a"), 64), newSide(t, f.Device("b"), 64)
	check(t, f.Link(a.qp, b.qp))
	return f, a, b
}

func TestStepsRunInTheOrderPosted(t *testing.T) {
	f, a, b := stepped(t)
	a.mem[0], b.mem[8] = 1, 2
	a.post(t, a.write(1, 0, 1, b, 0), a.write(2, 0, 1, b, 1))
	b.post(t, b.write(3, 8, 1, a, 8))
	silent(t, a.scq)
	if b.mem[0] != 0 {
		t.Fatal("bytes were placed before a step")
	}
	if !f.Step() || b.mem[0] != 1 || b.mem[1] != 0 {
		t.Fatalf("after one step: % x", b.mem[:2])
	}
	if !f.StepQP(b.qp) || a.mem[8] != 2 || b.mem[1] != 0 {
		t.Fatal("a step of the other queue pair")
	}
	if !f.Step() || b.mem[1] != 1 || f.Step() || f.StepQP(a.qp) {
		t.Fatal("the last step")
	}
	good(t, a.scq, 1)
	good(t, a.scq, 2)
	good(t, b.scq, 3)
}

func TestBreakKeepsWhatWasExecuted(t *testing.T) {
	f, a, b := stepped(t)
	a.mem[0] = 1
	a.postRecv(t, 9, 0, 8)
	b.postRecv(t, 8, 0, 8)
	a.post(t, a.write(1, 0, 1, b, 0), a.write(2, 0, 1, b, 1), a.write(3, 0, 1, b, 2))
	f.Step()
	f.Break(a.qp)
	if f.Step() {
		t.Fatal("a broken connection goes on")
	}
	good(t, a.scq, 1)
	if wc := next(t, a.scq); wc.Status != verbs.StatusTransport || wc.ID != 2 {
		t.Fatalf("the cause: %+v", wc)
	}
	allFlushed(t, a.scq, 1)
	allFlushed(t, a.rcq, 1)
	if wc := next(t, b.rcq); wc.Status != verbs.StatusTransport || wc.ID != 8 {
		t.Fatalf("the cause at the peer: %+v", wc)
	}
	if b.mem[0] != 1 || b.mem[1] != 0 {
		t.Fatalf("placed bytes: % x", b.mem[:3])
	}
}
