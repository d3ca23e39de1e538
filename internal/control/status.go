package control

import (
	"fmt"
	"strings"

	"github.com/pmemfs/pmemfs/internal/pauses"
)

// Verdict is the first word of a status.
type Verdict string

const (
	// Healthy: an fsync is durable on every copy.
	Healthy Verdict = "HEALTHY"
	// Degraded: a target is lost, and an fsync waits for it until the timeout.
	Degraded Verdict = "DEGRADED"
	// Failed: fsync fails and changes are refused until the pool is mounted anew.
	Failed Verdict = "FAILED"
	// ReadOnly: mounted with ro. Nothing is replicated, and nothing changes.
	ReadOnly Verdict = "READ-ONLY"
	// Offline: the pool is not mounted; the state is what its header says.
	Offline Verdict = "OFFLINE"
)

// ExitCode is what `pmemfs status` exits with: 0 healthy, read-only or offline, 1 degraded, 2 failed.
func (v Verdict) ExitCode() int {
	switch v {
	case Degraded:
		return 1
	case Failed:
		return 2
	}
	return 0
}

// Status of a mounted or unmounted pool. Bytes and seconds are plain numbers.
type Status struct {
	SchemaVersion int     `json:"schema_version"` // 1
	Verdict       Verdict `json:"verdict"`
	Error         string  `json:"error,omitempty"`
	PID           int     `json:"pid,omitempty"`
	Version       string  `json:"version,omitempty"`
	Mountpoint    string  `json:"mountpoint,omitempty"`
	Pool          string  `json:"pool"`
	PoolUUID      string  `json:"pool_uuid"`
	Term          uint64  `json:"term"`
	Generation    string  `json:"generation"`
	SealedLSN     uint64  `json:"sealed_lsn"` // of a mounted pool
	BytesTotal    uint64  `json:"bytes_total,omitempty"`
	BytesFree     uint64  `json:"bytes_free,omitempty"`
	Inodes        uint64  `json:"inodes,omitempty"`
	Copies        []Copy  `json:"copies"`
	// Requests counts FUSE requests by name, Drains the drains started on all copies.
	Requests map[string]uint64 `json:"requests,omitempty"`
	Drains   uint64            `json:"drains,omitempty"`
	// PauseP99 is the time in seconds that 99 % of the pauses of the daemon's runtime did not exceed: for the garbage collector, or
	// for anything else that stops it.
	PauseP99 float64 `json:"pause_p99_seconds,omitempty"`
	// Pauses are all of them since the daemon began; what came between two looks is the difference.
	Pauses pauses.Histogram `json:"pauses,omitempty"`
}

// Copy is the local pool or one target.
type Copy struct {
	Name       string `json:"name"`
	Role       string `json:"role"` // "local" or "target"
	State      string `json:"state"`
	Durability string `json:"durability"` // "media" or "memory"
	Detail     string `json:"detail,omitempty"`
	// Warnings are what an administrator should look at although nothing has failed.
	Warnings  []string `json:"warnings,omitempty"`
	Address   string   `json:"address,omitempty"`
	Provider  string   `json:"provider,omitempty"`
	Method    string   `json:"method,omitempty"`     // of persistency; of a pool that is not mounted, the configured one
	NotChosen string   `json:"not_chosen,omitempty"` // why the other methods are not used
	AnswerAge float64  `json:"last_answer_age_seconds"`
	InFlight  int      `json:"drains_in_flight"`
	Error     string   `json:"error,omitempty"`
	// Of a target: flush messages sent, those that asked for an answer, RDMA WRITEs, and bytes written by them.
	Sends         uint64 `json:"sends,omitempty"`
	AnsweredSends uint64 `json:"answered_sends,omitempty"`
	Writes        uint64 `json:"writes,omitempty"`
	BytesSent     uint64 `json:"bytes_sent,omitempty"`
	Reads         uint64 `json:"reads,omitempty"` // that prove WRITEs placed
	Flushes       uint64 `json:"flushes,omitempty"`
}

// Text is the status for people.
func (s *Status) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", s.Verdict)
	if s.Error != "" {
		fmt.Fprintf(&b, ": %s", s.Error)
	}
	fmt.Fprintf(&b, "\npool        %s (%s)\n", s.Pool, s.PoolUUID)
	if s.Mountpoint != "" {
		fmt.Fprintf(&b, "mounted at  %s by process %d\n", s.Mountpoint, s.PID)
	}
	fmt.Fprintf(&b, "term        %d, generation %s", s.Term, s.Generation)
	if s.Verdict != Offline {
		fmt.Fprintf(&b, ", sealed LSN %d", s.SealedLSN)
	}
	b.WriteByte('\n')
	if s.BytesTotal > 0 {
		fmt.Fprintf(&b, "space       %d of %d bytes free, %d inodes\n", s.BytesFree, s.BytesTotal, s.Inodes)
	}
	for _, c := range s.Copies {
		fmt.Fprintf(&b, "%-11s %s: %s, durability %s", c.Role, c.Name, c.State, c.Durability)
		if c.Detail != "" {
			fmt.Fprintf(&b, " (%s)", c.Detail)
		}
		switch {
		case c.Role == "target" && s.Verdict == Offline:
			fmt.Fprintf(&b, ", over %s at %s, method %s", c.Provider, c.Address, c.Method)
		case c.Role == "target":
			fmt.Fprintf(&b, ", %s over %s at %s, last answer %.1f s ago, %d drains in flight", c.Method, c.Provider, c.Address, c.AnswerAge, c.InFlight)
		case c.Method != "":
			fmt.Fprintf(&b, ", %s", c.Method)
		}
		if c.Error != "" {
			fmt.Fprintf(&b, ": %s", c.Error)
		}
		b.WriteByte('\n')
		if c.NotChosen != "" {
			fmt.Fprintf(&b, "            not used: %s\n", c.NotChosen)
		}
		for _, w := range c.Warnings {
			fmt.Fprintf(&b, "%-11s %s\n", "warning", w)
		}
	}
	return b.String()
}
