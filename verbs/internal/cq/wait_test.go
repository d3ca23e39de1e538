package cq

import (
	"errors"
	"testing"
	"time"

	"github.com/pmemfs/pmemfs/verbs"
)

// fake is a Source that receives nothing. Receive sleeps until Interrupt or the deadline.
type fake struct {
	busy        bool // another has the right to receive
	takes       int
	received    chan struct{} // a token when Receive sleeps
	interrupted chan struct{}
}

func newFake() *fake {
	return &fake{received: make(chan struct{}, 1), interrupted: make(chan struct{}, 16)}
}

func (f *fake) Take() bool {
	f.takes++
	return !f.busy
}

func (f *fake) Interrupt() { f.interrupted <- struct{}{} }

func (f *fake) Receive(q *Queue, until time.Time) {
	for time.Now().Before(until) && q.Block() {
		f.received <- struct{}{}
		select {
		case <-f.interrupted:
		case <-time.After(time.Until(until)):
		}
		q.Unblock()
	}
}

// start starts a Wait.
func start(q *Queue, d time.Duration) <-chan error {
	done := make(chan error, 1)
	go func() { done <- q.Wait(d) }()
	return done
}

func queue(t *testing.T) (*Queue, *Account) {
	t.Helper()
	q, err := New(8)
	if err != nil {
		t.Fatal(err)
	}
	a := open(t, q, 8)
	a.Take(8)
	return q, a
}

func TestWaitReceives(t *testing.T) {
	q, a := queue(t)
	f := newFake()
	q.Attach(f)
	q.Attach(newFake()) // there is one already
	done := start(q, 10*time.Second)
	<-f.received
	a.Complete(verbs.WC{})
	if err := <-done; err != nil {
		t.Errorf("Wait with a completion: %v", err)
	}
	a.Complete(verbs.WC{})
	if len(f.interrupted) != 0 {
		t.Error("a completion interrupts a Receive that is over")
	}
	var wc [2]verbs.WC
	if n, _ := q.Poll(wc[:]); n != 2 {
		t.Fatalf("%d completions", n)
	}
	begin := time.Now()
	if err := q.Wait(5 * time.Millisecond); !errors.Is(err, verbs.ErrTimeout) || time.Since(begin) < 5*time.Millisecond {
		t.Errorf("Wait without a completion: %v after %v", err, time.Since(begin))
	}
	<-f.received
	done = start(q, 10*time.Second)
	<-f.received
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("Wait of a queue that is closed: %v", err)
	}
}

// TestWaitAsksAgain: a Wait that does not get the right to receive sleeps, and asks again when nudged.
func TestWaitAsksAgain(t *testing.T) {
	q, a := queue(t)
	done := start(q, 10*time.Second)
	until(t, q)
	f := newFake()
	f.busy = true
	q.Attach(f)
	until(t, q)
	q.mu.Lock()
	f.busy = false
	q.mu.Unlock()
	q.Nudge()
	<-f.received
	q.Detach(newFake())
	q.Detach(f)
	a.Complete(verbs.WC{})
	if err := <-done; err != nil || f.takes != 2 {
		t.Errorf("Wait: %v, asked %d times", err, f.takes)
	}
	if q.source != nil {
		t.Error("the source is still there")
	}
}

// until returns when a Wait sleeps.
func until(t *testing.T, q *Queue) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		q.mu.Lock()
		waiting := q.waiting
		q.mu.Unlock()
		if waiting {
			return
		}
		if time.Now().After(end) {
			t.Fatal("Wait does not sleep")
		}
	}
}

func TestShortWaitDoesNotReceive(t *testing.T) {
	q, _ := queue(t)
	f := newFake()
	q.Attach(f)
	for _, d := range []time.Duration{-1, 0, minDrive - 1} {
		if err := q.Wait(d); !errors.Is(err, verbs.ErrTimeout) {
			t.Errorf("Wait: %v", err)
		}
	}
	if f.takes != 0 {
		t.Errorf("asked %d times", f.takes)
	}
}
