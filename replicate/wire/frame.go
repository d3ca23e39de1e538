package wire

import (
	"errors"
	"fmt"
	"io"
)

// Version of the control protocol and of the lane messages.
const Version = 1

// Sizes of a control frame in bytes.
const (
	FrameHeader = 24
	MaxBody     = 65536
)

const frameMagic = "PMFC"

// Type says what a control frame asks for. An answer carries the type of its request with the Answer bit.
type Type uint16

const (
	TypeHello Type = iota + 1
	TypeCreate
	TypeClaim
	TypeSetState
	TypeSetAttr
	TypeClose
	TypeRemove
	TypePing
	TypeFenced // notice, target to initiator
	TypeGrow

	Answer Type = 0x8000
)

var typeNames = [...]string{
	TypeHello: "HELLO", TypeCreate: "CREATE", TypeClaim: "CLAIM", TypeSetState: "SET_STATE", TypeSetAttr: "SET_ATTR",
	TypeClose: "CLOSE", TypeRemove: "REMOVE", TypePing: "PING", TypeFenced: "FENCED",
	TypeGrow: "GROW",
}

func (t Type) String() string {
	name := fmt.Sprintf("type %d", uint16(t&^Answer))
	if i := int(t &^ Answer); i > 0 && i < len(typeNames) {
		name = typeNames[i]
	}
	if t&Answer != 0 {
		name += " answer"
	}
	return name
}

// Frame is one control frame. ID is the number of the request, repeated in its answer, and 0 in a notice.
// Status is meaningful in answers only.
type Frame struct {
	Type   Type
	ID     uint32
	Status Status
	Body   []byte
}

// VersionError is a frame of another protocol version. Its body was not read: the answerer sends status VERSION with
// its own version in the header, and both sides close the connection.
type VersionError struct {
	Got uint16
	ID  uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("wire: the peer speaks control protocol version %d, this program version %d: run the same release of pmemfs on both sides", e.Got, Version)
}

// ErrTooLong: a body above MaxBody, which no valid message has.
var ErrTooLong = fmt.Errorf("wire: frame body is longer than %d bytes", MaxBody)

// AppendFrame appends the encoded frame to b. The body must not be longer than MaxBody.
func AppendFrame(b []byte, f Frame) []byte {
	start := len(b)
	b = append(b, frameMagic...)
	b = le.AppendUint16(b, Version)
	b = le.AppendUint16(b, uint16(f.Type))
	b = le.AppendUint32(b, uint32(len(f.Body)))
	b = le.AppendUint32(b, f.ID)
	b = le.AppendUint32(b, uint32(f.Status))
	b = le.AppendUint32(b, 0)
	b = append(b, f.Body...)
	le.PutUint32(b[start+20:], sum(b[start:], 20))
	return b
}

// WriteFrame writes f with one Write.
func WriteFrame(w io.Writer, f Frame) error {
	if len(f.Body) > MaxBody {
		return ErrTooLong
	}
	_, err := w.Write(AppendFrame(make([]byte, 0, FrameHeader+len(f.Body)), f))
	return err
}

// ReadFrame reads one frame. It returns io.EOF if the stream ends before the first byte, *VersionError for another version
// (with type and id in the frame), ErrTooLong before it reads a body above MaxBody, and an error that wraps ErrCorrupt for all
// other bytes that are no frame. After any error the stream is of no further use.
func ReadFrame(r io.Reader) (Frame, error) {
	buf := make([]byte, FrameHeader)
	if _, err := io.ReadFull(r, buf); err != nil {
		return Frame{}, cut(err)
	}
	f, n, err := decodeHeader(buf)
	if err != nil {
		return f, err
	}
	buf = append(buf, make([]byte, n)...)
	if _, err := io.ReadFull(r, buf[FrameHeader:]); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, cut(err)
	}
	if got, want := le.Uint32(buf[20:]), sum(buf, 20); got != want {
		return Frame{}, corrupt("%v: checksum %08x, computed %08x", f.Type, got, want)
	}
	f.Body = buf[FrameHeader:]
	return f, nil
}

// cut marks a stream that ended inside a frame as corrupt; io.EOF and errors of the connection pass.
func cut(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: the stream ended inside a frame: %w", ErrCorrupt, io.ErrUnexpectedEOF)
	}
	return err
}

func decodeHeader(b []byte) (f Frame, n int, err error) {
	if string(b[:4]) != frameMagic {
		return f, 0, corrupt("frame begins with %x, expected %x", b[:4], frameMagic)
	}
	f.Type, f.ID, f.Status = Type(le.Uint16(b[6:])), le.Uint32(b[12:]), Status(le.Uint32(b[16:]))
	if v := le.Uint16(b[4:]); v != Version {
		return f, 0, &VersionError{Got: v, ID: f.ID}
	}
	if le.Uint32(b[8:]) > MaxBody {
		return f, 0, ErrTooLong
	}
	return f, int(le.Uint32(b[8:])), nil
}
