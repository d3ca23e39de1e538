package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pmemfs/pmemfs/internal/pmem"
)

func id(b byte) (u UUID) {
	for i := range u {
		u[i] = b + byte(i)
	}
	return u
}

func testAttr() Attr {
	return Attr{Signature: [8]byte{'H', 'E', 'L', 'L', 'O'}, Major: 1, Compat: 2, Incompat: 3, ROCompat: 4,
		PoolUUID: id(0x10), CopyID: id(0x20), Next: id(0x30), Prev: id(0x40), UserFlags: id(0x50)}
}

func testState() State {
	return State{Attr: testAttr(), PoolSize: 32 << 20, Term: 7, Writer: id(0x60), Gen: 0x1122334455667788,
		History: [8]uint64{9, 8, 7, 6, 5, 4, 3, 2}, Flags: FlagClean | FlagMemory, Durability: DurabilityMemory, Served: 1}
}

func testRegion() Region {
	return Region{5<<20 + 4096, 2 << 20, []Chunk{{0x1000, 5}, {0x400000, 6}, {1 << 40, 7}}}
}

// body is what every control body can do.
type body interface {
	Append([]byte) []byte
	Decode([]byte) error
}

// bodies lists one filled body of each kind beside an empty one to decode into.
func bodies() map[string][2]body {
	st := testState()
	return map[string][2]body{
		"HELLO":  {&Hello{id(1), id(2), 3, 4, "pool.set"}, new(Hello)},
		"CREATE": {&Create{testAttr(), 1 << 20, "pool.set"}, new(Create)},
		"CLAIM":  {&Claim{id(1), id(2), 3, 4, [8]uint64{5, 6}, 7, 2, AllMethods, "pool.set"}, new(Claim)},
		"SET_STATE": {&SetState{1, 2, [8]uint64{3}, FlagInconsistent, FlagClean, 6, 7, []UUID{id(8), id(9)}},
			new(SetState)},
		"SET_ATTR": {&SetAttr{1, testAttr()}, new(SetAttr)},
		"CLOSE":    {&Close{1}, new(Close)},
		"REMOVE":   {&Remove{id(1), 1, "pool.set"}, new(Remove)},
		"GROW":     {&Grow{1, 2 << 30}, new(Grow)},
		"GROWN":    {&Grown{testRegion()}, new(Grown)},
		"FENCED":   {&Fenced{9, "promoted on b"}, new(Fenced)},
		"STATE":    {&st, new(State)},
		"GRANT":    {&Grant{1, ":7471", 64, 256, APM, "FLUSH: no device", testRegion(), Area{3, 4, 4096}, Area{5, 6, 1 << 26}}, new(Grant)},
	}
}

func TestBodyRoundTripAndLength(t *testing.T) {
	for name, pair := range bodies() {
		want, got := pair[0], pair[1]
		b := want.Append(nil)
		if err := got.Decode(b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: (-want +got)\n%s", name, d)
		}
		for n := range len(b) {
			if err := got.Decode(b[:n]); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s cut to %d of %d bytes: %v", name, n, len(b), err)
			}
		}
		if err := got.Decode(append(b, 0)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s with a byte too many: %v", name, err)
		}
	}
}

func TestSizesOfTheFormat(t *testing.T) {
	a, st, p := testAttr(), testState(), Private{Lane: 1, Session: 2}
	if n := len(appendAttr(nil, &a)); n != AttrSize {
		t.Errorf("ATTR has %d bytes", n)
	}
	if n := len(st.Append(nil)); n != AttrSize+8+8+16+8+64+12 {
		t.Errorf("STATE has %d bytes", n)
	}
	if n := len(p.Append(nil)); n != PrivateSize {
		t.Errorf("private data has %d bytes", n)
	}
}

func TestGolden(t *testing.T) {
	hello := Hello{id(1), id(2), 3, 4, "p"}
	flush := Flush{Seq: 5, Session: 6, Answer: true, Seal: pmem.Seal{Off: 0x2000, Val: 0x0102030405060708},
		Ranges: []pmem.Range{{Off: 0x1008, Len: 0x38}}}
	staged, fetch := flush, flush
	staged.Seal, staged.Stage, staged.StageAt = pmem.Seal{}, Staged, 3*StageUnit
	fetch.Seal, fetch.Stage = pmem.Seal{}, Fetch
	sb, tb := make([]byte, MaxFlush), make([]byte, MaxFlush)
	answer := FlushAnswer{FlushIO, 5, 9, 3, 0x1008}
	private := Private{Lane: 2, Session: 0x0a0b}
	grow, grown := Grow{6, 0x20000000}, Grown{Region{0x20000000, 0x10000000, []Chunk{{0x4000001000, 0x107}, {0x8000000000, 0x208}}}}
	grant := Grant{6, ":1", 64, 256, GPSPM, "w", Region{0x10000, 0x10000, []Chunk{{0x4000001000, 0x107}}}, Area{0x8000000000, 0x208, 0x1000}, Area{}}
	attr := testAttr()
	claim := Claim{id(1), id(2), 3, 4, [8]uint64{5}, 1, 2, MethodSet(GPSPM, FLUSH), "p"}
	fb, ab := make([]byte, MaxFlush), make([]byte, AnswerSize)
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"frame": {AppendFrame(nil, Frame{TypeHello, 0x11, StatusOK, hello.Append(nil)}), `
			504d4643 0100 0100 33000000 11000000 00000000 @CRC
			0102030405060708090a0b0c0d0e0f10 02030405060708090a0b0c0d0e0f1011 0300000000000000 0400000000000000 0100 70`},
		"answer frame": {AppendFrame(nil, Frame{TypeClose | Answer, 2, StatusNoSession, AppendRefusal(nil, "x", nil)}), `
			504d4643 0100 0680 03000000 02000000 0c000000 @CRC 0100 78`},
		"flush": {fb[:flush.Encode(fb)], `
			504d4651 01 03 0100 0500000000000000 0600000000000000 0020000000000000 0807060504030201 00000000 @CRC
			0810000000000000 3800000000000000`},
		"staged flush": {sb[:staged.Encode(sb)], `
			504d4651 01 05 0100 0500000000000000 0600000000000000 0000000000000000 0000000000000000 03000000 @CRC
			0810000000000000 3800000000000000`},
		"fetch": {tb[:fetch.Encode(tb)], `
			504d4651 01 09 0100 0500000000000000 0600000000000000 0000000000000000 0000000000000000 00000000 @CRC
			0810000000000000 3800000000000000`},
		"flush answer": {ab[:answer.Encode(ab)], `
			504d4652 01 02 0000 0500000000000000 0900000000000000 0300000000000000 0810000000000000 00000000 @CRC`},
		"grow":  {grow.Append(nil), `0600000000000000 0000002000000000`},
		"grown": {grown.Append(nil), `0000002000000000 0000001000000000 02000000 0010000040000000 07010000 0000000080000000 08020000`},
		"grant": {grant.Append(nil), `0600000000000000 0200 3a31 40000000 00010000 01000000 0100 77
			0000010000000000 0000010000000000 01000000 0010000040000000 07010000 0000000080000000 08020000 0010000000000000 0000000000000000 00000000 0000000000000000`},
		"claim": {claim.Append(nil), `0102030405060708090a0b0c0d0e0f10 02030405060708090a0b0c0d0e0f1011 0300000000000000 0400000000000000
			0500000000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000
			01000000 02000000 0a000000 0100 70`},
		"private": {private.Append(nil), `504d464c 0100 0200 0b0a000000000000`},
		"attr": {appendAttr(nil, &attr), `48454c4c4f000000 01000000 02000000 03000000 04000000
			101112131415161718191a1b1c1d1e1f 202122232425262728292a2b2c2d2e2f 303132333435363738393a3b3c3d3e3f
			404142434445464748494a4b4c4d4e4f 505152535455565758595a5b5c5d5e5f`},
	} {
		want := strings.Join(strings.Fields(c.want), "")
		want = strings.Replace(want, "@CRC", goldenCRC[name], 1)
		if got := hex.EncodeToString(c.got); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
}

// goldenCRC was computed by another implementation of CRC-32C, bit by bit.
var goldenCRC = map[string]string{
	"frame": "604aacec", "answer frame": "8d7d03d8", "flush": "6b048873", "flush answer": "f17fc151",
	"staged flush": "8a06bdc0", "fetch": "681a677d",
}

func TestFrameOverConnection(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	want := Frame{TypeClaim, 3, StatusOK, []byte("body")}
	go func() {
		WriteFrame(b, want)
		WriteFrame(b, Frame{Type: TypePing | Answer, ID: 4})
		b.Close()
	}()
	for _, w := range []Frame{want, {TypePing | Answer, 4, StatusOK, []byte{}}} {
		got, err := ReadFrame(a)
		if err != nil || cmp.Diff(w, got) != "" {
			t.Fatalf("got %+v, %v; want %+v", got, err, w)
		}
	}
	if _, err := ReadFrame(a); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestReadFrameRefuses(t *testing.T) {
	good := AppendFrame(nil, Frame{TypeHello, 1, StatusOK, []byte("abc")})
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 0x10
		if f, err := ReadFrame(bytes.NewReader(b)); err == nil {
			t.Errorf("byte %d flipped: frame %+v was taken", i, f)
		}
	}
	for n := 1; n < len(good); n++ {
		if _, err := ReadFrame(bytes.NewReader(good[:n])); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	other := bytes.Clone(good)
	other[4] = 2
	var ve *VersionError
	if _, err := ReadFrame(bytes.NewReader(other)); !errors.As(err, &ve) || ve.Got != 2 || ve.ID != 1 {
		t.Errorf("version 2: %v", err)
	}
	long := bytes.Clone(good)
	le.PutUint32(long[8:], MaxBody+1)
	if _, err := ReadFrame(bytes.NewReader(long)); err != ErrTooLong {
		t.Errorf("long body: %v", err)
	}
	if err := WriteFrame(io.Discard, Frame{Body: make([]byte, MaxBody+1)}); err != ErrTooLong {
		t.Errorf("writing a long body: %v", err)
	}
}

func TestRefusal(t *testing.T) {
	st := testState()
	err := Refusal(Frame{TypeClaim | Answer, 1, StatusFenced, AppendRefusal(nil, "promoted at term 9", &st)})
	var re *RefusedError
	if !errors.As(err, &re) || !errors.Is(err, StatusFenced) || re.State == nil || re.State.Term != st.Term {
		t.Errorf("fenced: %v", err)
	}
	if !strings.Contains(err.Error(), "CLAIM refused: promoted at term 9") {
		t.Errorf("text %q", err)
	}
	if err := Refusal(Frame{Type: TypeCreate | Answer, Status: StatusExists, Body: AppendRefusal(nil, "", nil)}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("exists: %v", err)
	}
	if err := Refusal(Frame{Type: TypeHello | Answer, Status: StatusNoPool, Body: AppendRefusal(nil, "", nil)}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no pool: %v", err)
	}
	if err := Refusal(Frame{Type: TypeClaim | Answer, Status: StatusFenced, Body: AppendRefusal(nil, "x", nil)}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("fenced without state: %v", err)
	}
	for s := StatusOK; s <= StatusRegister; s++ {
		if s.Error() == "" || strings.Contains(s.Error(), "unknown") {
			t.Errorf("status %d has no text", s)
		}
	}
}

func TestStringsAreBounded(t *testing.T) {
	m := Fenced{1, strings.Repeat("x", MaxString+10)}
	var got Fenced
	if err := got.Decode(m.Append(nil)); err != nil || len(got.Text) != MaxString {
		t.Errorf("%d bytes, %v", len(got.Text), err)
	}
	b := le.AppendUint64(nil, 1)
	b = append(le.AppendUint16(b, MaxString+1), make([]byte, MaxString+1)...)
	if err := got.Decode(b); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a string above the limit: %v", err)
	}
}

func TestSetStateBoundsPeers(t *testing.T) {
	m := SetState{Peers: make([]UUID, MaxPeers+1)}
	if err := new(SetState).Decode(m.Append(nil)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("nine peers: %v", err)
	}
}

// A region that does not fit together is refused, since At would look for chunks that are not there.
func TestRegionRefused(t *testing.T) {
	good := testRegion()
	for name, spoil := range map[string]func(*Region){
		"no power of two":    func(m *Region) { m.ChunkSize += 1 << 10 },
		"chunks of nothing":  func(m *Region) { m.ChunkSize = 0 },
		"chunks without any": func(m *Region) { m.Chunks = nil },
		"small chunks":       func(m *Region) { m.ChunkSize = MinChunk / 2 },
		"a chunk too few":    func(m *Region) { m.Chunks = m.Chunks[:2] },
		"a chunk too many":   func(m *Region) { m.Chunks = append(m.Chunks, Chunk{}) },
		"a header alone":     func(m *Region) { m.PoolSize, m.Chunks = FirstOffset, m.Chunks[:1] },
		"no pool":            func(m *Region) { m.PoolSize, m.Chunks = 0, nil },
		"the largest pool":   func(m *Region) { m.PoolSize = ^uint64(0) },
		"too many chunks": func(m *Region) {
			m.ChunkSize, m.PoolSize, m.Chunks = MinChunk, MinChunk*(MaxChunks+1), make([]Chunk, MaxChunks+1)
		},
	} {
		m := good
		m.Chunks = slices.Clone(good.Chunks)
		spoil(&m)
		if err := new(Grown).Decode((&Grown{m}).Append(nil)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := new(Grown).Decode((&Grown{Region{PoolSize: 1 << 20}}).Append(nil)); err != nil {
		t.Errorf("a pool out of reach: %v", err)
	}
	most := Region{MinChunk * MaxChunks, MinChunk, make([]Chunk, MaxChunks)}
	if err := new(Grown).Decode((&Grown{most}).Append(nil)); err != nil {
		t.Errorf("as many chunks as there can be: %v", err)
	}
	if n := len((&Grant{Fabric: strings.Repeat("x", MaxString), Region: most}).Append(nil)); n > MaxBody {
		t.Errorf("the largest grant has %d bytes", n)
	}
}

func TestRegionAt(t *testing.T) {
	m := testRegion()
	for _, c := range []struct {
		off, addr uint64
		rkey      uint32
		rest      uint64
	}{
		{4096, 0x1000, 5, 2<<20 - 4096},
		{2<<20 - 1, 0x1000 + 2<<20 - 4097, 5, 1},
		{2 << 20, 0x400000, 6, 2 << 20},
		{4<<20 + 8, 1<<40 + 8, 7, 2<<20 - 8},
	} {
		addr, rkey := m.At(c.off)
		if rest := m.Rest(c.off); addr != c.addr || rkey != c.rkey || rest != c.rest {
			t.Errorf("offset %#x: address %#x, key %d, %d bytes; want %+v", c.off, addr, rkey, rest, c)
		}
	}
}

func TestMethods(t *testing.T) {
	for _, c := range []struct {
		s    Methods
		want string
	}{{0, "none"}, {AllMethods, "GPSPM, APM, FLUSH"}, {MethodSet(APM), "APM"}, {1, "none"}, {1 << 31, "none"}} {
		if got := c.s.String(); got != c.want {
			t.Errorf("%#x: %q", uint32(c.s), got)
		}
	}
	if AllMethods.Has(0) || AllMethods.Has(4) || AllMethods.Has(1<<31) || !AllMethods.Has(FLUSH) {
		t.Error("a method is in a set that does not have it, or is not in one that has it")
	}
	for text, want := range map[string]Method{"auto": 0, "gpspm": GPSPM, "apm": APM, "flush": FLUSH} {
		var m Method
		if err := m.UnmarshalText([]byte(text)); err != nil || m != want {
			t.Errorf("%s: %v, %v", text, m, err)
		}
	}
	for _, text := range []string{"", "APM", "method 4"} {
		if err := new(Method).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}
