package wire

import (
	"bytes"
	"testing"

	"github.com/pmemfs/pmemfs/internal/pmem"
)

// Whatever decodes must encode to the same bytes again, so that no two byte strings mean the same message.

func FuzzFrame(f *testing.F) {
	f.Add(AppendFrame(nil, Frame{TypeHello, 1, StatusOK, []byte("abc")}))
	f.Add(AppendFrame(nil, Frame{TypePing, 2, StatusOK, nil}))
	f.Add([]byte(frameMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := ReadFrame(bytes.NewReader(b))
		if err != nil {
			return
		}
		if got := AppendFrame(nil, fr); !bytes.HasPrefix(b, got) {
			t.Errorf("%x decodes to %+v, which encodes to %x", b, fr, got)
		}
		if fr.Status != StatusOK {
			_ = Refusal(fr).Error()
		}
	})
}

func FuzzBodies(f *testing.F) {
	for _, pair := range bodies() {
		f.Add(pair[0].Append(nil))
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		for name, pair := range bodies() {
			m := pair[1]
			if m.Decode(b) != nil {
				continue
			}
			if got := m.Append(nil); !bytes.Equal(got, b) {
				t.Errorf("%s: %x decodes to %+v, which encodes to %x", name, b, m, got)
			}
		}
	})
}

// FuzzFlush repairs the checksum of its input first, so that the checks behind it are reached.
func FuzzFlush(f *testing.F) {
	buf := make([]byte, MaxFlush)
	for _, m := range []Flush{
		{Seq: 1, Session: 2, Answer: true, Seal: pmem.Seal{Off: 8192, Val: 3}, Ranges: []pmem.Range{{Off: 4096, Len: 64}}},
		{Ranges: make([]pmem.Range, MaxRanges)},
		{Seal: pmem.Seal{Off: 8192, Val: 3}, Stage: Staged, StageAt: 5 * StageUnit, Ranges: []pmem.Range{{Off: 4096, Len: 64}}},
		{Answer: true, Stage: Fetch, StageAt: StageUnit << 31, Ranges: []pmem.Range{{Off: 4096, Len: 64}}},
	} {
		f.Add(bytes.Clone(buf[:m.Encode(buf)]))
	}
	f.Add([]byte(flushMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= FlushHeader {
			le.PutUint32(b[44:], sum(b, 44))
		}
		var m Flush
		if m.Decode(b) != nil {
			return
		}
		out := make([]byte, MaxFlush)
		// Encode derives the seal flag from the offset, which Decode requires to be a proper one.
		if got := out[:m.Encode(out)]; !bytes.Equal(got, b) {
			t.Errorf("%x decodes to %+v, which encodes to %x", b, m, got)
		}
		if where, ok := m.Check(1 << 20); ok && where != 0 {
			t.Errorf("where %d without a fault", where)
		}
		if sum, small := uint64(0), true; m.CheckStage(1 << 20) {
			for _, r := range m.Ranges {
				small = small && r.Len <= 1<<20
				sum += r.Len
			}
			if !small || m.StageAt+sum > 1<<20 {
				t.Errorf("%d bytes at %d in a staging area of a MiB", sum, m.StageAt)
			}
		}
	})
}

func FuzzFlushAnswer(f *testing.F) {
	buf := make([]byte, AnswerSize)
	(&FlushAnswer{FlushIO, 1, 2, 3, 4}).Encode(buf)
	f.Add(buf)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == AnswerSize {
			le.PutUint32(b[44:], sum(b, 44))
		}
		var m FlushAnswer
		if m.Decode(b) != nil {
			return
		}
		out := make([]byte, AnswerSize)
		if m.Encode(out); !bytes.Equal(out, b) {
			t.Errorf("%x decodes to %+v, which encodes to %x", b, m, out)
		}
	})
}

func FuzzPrivate(f *testing.F) {
	f.Add((&Private{1, 2}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Private
		if m.Decode(b) == nil && !bytes.Equal(m.Append(nil), b) {
			t.Errorf("%x decodes to %+v", b, m)
		}
	})
}
