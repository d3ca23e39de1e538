package initiator

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/control"
	"github.com/pmemfs/pmemfs/internal/pauses"
	"github.com/pmemfs/pmemfs/internal/pmem"
	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/internal/version"
	"github.com/pmemfs/pmemfs/replicate"
)

// answer serves the control socket.
func (m *Mounted) answer(req control.Request) control.Reply {
	switch req.Op {
	case control.OpStatus:
		return control.Reply{Status: m.status()}
	case control.OpSync:
		reply := control.Reply{}
		if err := m.commit.Settle(); err != nil {
			reply.Error = err.Error()
		}
		reply.Status = m.status()
		return reply
	case control.OpGrow:
		size, err := m.grow()
		if err != nil {
			return control.Reply{Error: err.Error()}
		}
		return control.Reply{PoolSize: size}
	}
	return control.Reply{Error: fmt.Sprintf("unknown request %q: the programs are of different versions", req.Op)}
}

// status waits for a target no longer than posting a drain to it may take, see writeTimeout.
func (m *Mounted) status() *control.Status {
	space := m.vol.StatFS()
	s := m.serving(control.Healthy)
	s.SealedLSN = m.commit.Durable()
	s.BytesTotal, s.BytesFree, s.Inodes = space.Blocks*4096, space.Free*4096, space.Inodes
	s.Pauses = pauses.Read()
	s.PauseP99 = s.Pauses.P99()
	s.Requests, s.Drains = m.fuse.Counts().ByName(), m.commit.Drains()
	s.Copies = append(s.Copies, m.localCopy())
	for _, l := range m.links {
		r := l.replica.Status()
		c := control.Copy{
			Name: l.remote.String(), Role: "target", State: r.State.String(), Durability: pool.Durability(r.Durability).String(), Detail: detour(&r), Address: l.conf.Address,
			Provider: l.conf.Provider, Method: r.Method.String(), NotChosen: r.NotChosen, InFlight: r.InFlight, AnswerAge: r.AnswerAge.Seconds(),
			Sends: r.Sent.Sends, AnsweredSends: r.Sent.Answered, Writes: r.Sent.Writes, BytesSent: r.Sent.Bytes, Reads: r.Sent.Reads, Flushes: r.Sent.Flushes,
		}
		if r.Err != nil {
			c.Error = r.Err.Error()
		}
		if r.State != replicate.InSync {
			s.Verdict = control.Degraded
		}
		s.Copies = append(s.Copies, c)
	}
	if err := cmp.Or(m.commit.Err(), m.vol.Stopped(), m.vol.Fault()); err != nil {
		s.Verdict, s.Error = control.Failed, err.Error()
	}
	return s
}

// detour says which way the bytes take to the target, if it is not the direct one.
func detour(r *replicate.Status) string {
	var parts []string
	if r.Bounce > 0 {
		parts = append(parts, fmt.Sprintf("of %d MiB here", r.Bounce>>20))
	}
	if r.Staging > 0 {
		parts = append(parts, fmt.Sprintf("of %d MiB at the target", r.Staging>>20))
	}
	if len(parts) == 0 {
		return ""
	}
	return "through bounce buffers " + strings.Join(parts, " and ")
}

// serving describes the pool and this daemon.
func (m *Mounted) serving(v control.Verdict) *control.Status {
	s := describe(m.Set, m.id, m.pool.State())
	s.Verdict, s.PID, s.Version, s.Mountpoint = v, os.Getpid(), version.Version, m.Mountpoint
	return s
}

// OfflineStatus reads the header of a pool that is not mounted. It takes no lock and changes nothing.
func OfflineStatus(cfg *config.Mount, set *poolset.Set) (*control.Status, error) {
	info, err := pool.Inspect(set)
	if err != nil {
		return nil, err
	}
	s := describe(set, info.Header.Attr, info.State)
	s.Verdict = control.Offline
	s.Copies = append(s.Copies, offlineCopy(set, info))
	for _, r := range set.Replicas {
		conf := cfg.Target(hostKey(r))
		s.Copies = append(s.Copies, control.Copy{Name: r.String(), Role: "target", State: "not asked", Durability: conf.Durability.String(), Address: conf.Address, Provider: conf.Provider, Method: conf.Method.String()})
	}
	return s, nil
}

func describe(set *poolset.Set, id poolset.Attr, st poolset.State) *control.Status {
	return &control.Status{
		SchemaVersion: 1, Pool: set.File, PoolUUID: id.PoolUUID.String(), Term: st.Term, Generation: fmt.Sprintf("%016x", st.Gen),
	}
}

// role says in words what a copy is.
func role(id poolset.Attr, st poolset.State) string {
	words := []string{"replica"}
	if st.Writer == id.CopyID {
		words[0] = "primary"
	}
	if flags := st.Flags.String(); flags != "" {
		words = append(words, flags)
	}
	return strings.Join(words, ", ")
}

func offlineCopy(set *poolset.Set, info pool.Info) control.Copy {
	c := control.Copy{Name: set.Parts[0].Path, Role: "local", State: role(info.Header.Attr, info.State), Durability: pool.Media.String()}
	if info.State.Flags&poolset.Memory != 0 {
		c.Durability = pool.Memory.String()
	}
	if info.Holder != nil {
		c.Detail = fmt.Sprintf("held by process %d for %s", info.Holder.PID, info.Holder.Role)
	}
	return c
}

// writeBack names the instructions that make stores to persistent memory persistent.
func writeBack(arch string, eadr bool) string {
	flush, fence := "CLWB", "SFENCE"
	if arch == "arm64" {
		flush, fence = "DC CVAP", "DSB"
	}
	if eadr {
		return fence + ", eADR"
	}
	return flush + "+" + fence
}

func (m *Mounted) localCopy() control.Copy {
	r := m.pool.Region()
	c := control.Copy{Name: m.Set.Parts[0].Path, Role: "local", State: "in use", Durability: pool.Media.String(), Warnings: m.doubts}
	switch r.Promise() {
	case pmem.Volatile:
		c.Durability, c.Method = pool.Memory.String(), "none (memory)"
		c.Detail = "volatile: lost with the machine"
	case pmem.PageCache:
		c.Detail, c.Method = "ordinary file", "msync"
	case pmem.Persistent:
		c.Detail = fmt.Sprintf("persistent memory: %v", r.Kind())
		c.Method = writeBack(runtime.GOARCH, m.eadr)
	}
	return c
}
