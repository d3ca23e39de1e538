package poolset

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// UUID identifies a pool or a copy of one. The zero UUID stands for none.
type UUID [16]byte

// NewUUID returns a random UUID (RFC 9562, version 4).
func NewUUID() UUID {
	var u UUID
	rand.Read(u[:]) // never fails: crypto/rand ends the process instead
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return u
}

// ParseUUID reads 8-4-4-4-12 hexadecimal digits.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return UUID{}, fmt.Errorf("%q is not a UUID: expected 8-4-4-4-12 hexadecimal digits", s)
	}
	if _, err := hex.Decode(u[:], []byte(s[:8]+s[9:13]+s[14:18]+s[19:23]+s[24:])); err != nil {
		return UUID{}, fmt.Errorf("%q is not a UUID: %w", s, err)
	}
	return u, nil
}

func (u UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// IsZero says whether u stands for none.
func (u UUID) IsZero() bool { return u == UUID{} }
