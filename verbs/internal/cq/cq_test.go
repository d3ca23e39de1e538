package cq

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

func open(t *testing.T, q *Queue, depth int) *Account {
	t.Helper()
	a, err := q.Open(depth)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestPlacesComeBackWithTheCompletion(t *testing.T) {
	q, err := New(4)
	if err != nil {
		t.Fatal(err)
	}
	a := open(t, q, 4)
	if !a.Take(3) || a.Take(2) || !a.Take(1) {
		t.Fatal("4 places are not taken as 3 and 1")
	}
	a.Skip()
	a.Skip()
	if a.Take(1) {
		t.Fatal("an unsignaled work request gave its place back alone")
	}
	a.Complete(verbs.WC{ID: 3})
	if a.Take(1) {
		t.Fatal("a place came back before its completion was polled")
	}
	var wc [2]verbs.WC
	if n, err := q.Poll(wc[:]); n != 1 || err != nil || wc[0].ID != 3 {
		t.Fatalf("polled %d, %v, %+v", n, err, wc[0])
	}
	if a.Take(4) || !a.Take(3) {
		t.Fatal("3 places should have come back")
	}
}

func TestReservations(t *testing.T) {
	q, err := New(4)
	if err != nil {
		t.Fatal(err)
	}
	a := open(t, q, 3)
	if _, err := q.Open(2); err == nil {
		t.Fatal("5 places reserved of 4")
	}
	a.Take(2)
	a.Complete(verbs.WC{})
	a.Complete(verbs.WC{})
	a.Close()
	a.Close()
	if _, err := q.Open(3); err == nil {
		t.Fatal("places of completions that were not polled are given away")
	}
	var wc [1]verbs.WC
	if _, err := q.Poll(wc[:]); err != nil {
		t.Fatal(err)
	}
	open(t, q, 3)
}

// TestRingWraps fills and empties a queue of two accounts many times while the other side waits.
func TestRingWraps(t *testing.T) {
	const rounds = 10_000
	q, err := New(5)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, depth := range []int{2, 3} {
		a := open(t, q, depth)
		wg.Go(func() {
			for i := range uint64(rounds) {
				for !a.Take(1) {
					time.Sleep(time.Microsecond)
				}
				a.Complete(verbs.WC{ID: i, Len: uint32(depth)})
			}
		})
	}
	next := map[uint32]uint64{}
	var wc [3]verbs.WC
	for next[2] < rounds || next[3] < rounds {
		n, err := q.Poll(wc[:])
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range wc[:n] {
			if c.ID != next[c.Len] {
				t.Fatalf("completion %d of account %d; want %d", c.ID, c.Len, next[c.Len])
			}
			next[c.Len]++
		}
		if n == 0 {
			if err := q.Wait(time.Millisecond); err != nil && !errors.Is(err, verbs.ErrTimeout) {
				t.Fatal(err)
			}
		}
	}
	wg.Wait()
}

func TestPollAndCompleteAllocateNothing(t *testing.T) {
	q, err := New(2)
	if err != nil {
		t.Fatal(err)
	}
	a := open(t, q, 2)
	var wc [2]verbs.WC
	n := testing.AllocsPerRun(1000, func() {
		a.Take(2)
		a.Skip()
		a.Complete(verbs.WC{})
		if q.Wait(time.Second) != nil {
			t.Error("Wait")
		}
		if n, _ := q.Poll(wc[:]); n != 1 {
			t.Error("Poll")
		}
		_ = q.Wait(time.Microsecond) // times out
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
