package posixacl

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// golden is u::rw-,u:1000:rwx,g::r--,g:100:r-x,m::rwx,o::---, written by hand.
const golden = `02000000 0100 0600 ffffffff 0200 0700 e8030000 0400 0400 ffffffff 0800 0500 64000000 1000 0700 ffffffff 2000 0000 ffffffff`

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenBytes(t *testing.T) {
	b := unhex(t, golden)
	acl, err := Decode(b)
	if err != nil || len(acl) != 6 || acl[1] != (Entry{User, 7, 1000}) || acl[3] != (Entry{Group, 5, 100}) {
		t.Fatal(acl, err)
	}
	if got := acl.Append(nil); !bytes.Equal(got, b) {
		t.Errorf("got %x", got)
	}
}

func TestDecode_Invalid(t *testing.T) {
	const owner, group, other = "01000600ffffffff", "04000400ffffffff", "20000000ffffffff"
	const user, mask = "02000700e8030000", "10000700ffffffff"
	for what, s := range map[string]string{
		"empty":             "",
		"header alone":      "02000000",
		"cut":               "02000000" + owner + group + other[:8],
		"version":           "03000000" + owner + group + other,
		"no owner":          "02000000" + group + other,
		"no group":          "02000000" + owner + other,
		"no others":         "02000000" + owner + group,
		"no mask":           "02000000" + owner + user + group + other,
		"order":             "02000000" + owner + group + user + mask + other,
		"two owners":        "02000000" + owner + owner + group + other,
		"two masks":         "02000000" + owner + user + group + mask + mask + other,
		"tag":               "02000000" + owner + group + "40000000ffffffff" + other,
		"tag zero":          "02000000" + owner + group + "00000000ffffffff" + other,
		"two tags in one":   "02000000" + owner + group + "30000000ffffffff",
		"permissions":       "02000000" + "01000800ffffffff" + group + other,
		"user without name": "02000000" + owner + "02000700ffffffff" + group + mask + other,
		"too long":          "02000000" + strings.Repeat(user, 512),
	} {
		if acl, err := Decode(unhex(t, s)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, %v", what, acl, err)
		}
	}
}

// The rules of acl(5): a list and a mode, and what comes of both.
func TestRules(t *testing.T) {
	minimal := ACL{{UserObj, 7, noID}, {GroupObj, 5, noID}, {Other, 4, noID}}
	masked := ACL{{UserObj, 7, noID}, {User, 7, 5}, {GroupObj, 5, noID}, {Mask, 6, noID}, {Other, 1, noID}}
	for _, c := range []struct {
		what           string
		acl            ACL
		mode           uint32
		set, create    uint32 // modes
		chmod, created string // the permissions in the list
	}{
		{"minimal", minimal, 0100660, 0100754, 0100640, "660", "640"},
		{"masked", masked, 0101666, 0101761, 0101660, "67566", "67560"},
		{"nothing", masked, 0, 0761, 0, "07500", "07500"},
		{"special bits", masked, 07777, 07761, 07761, "77577", "77561"},
	} {
		if got := c.acl.Mode(c.mode); got != c.set {
			t.Errorf("%s: set: mode %o, expected %o", c.what, got, c.set)
		}
		acl := append(ACL(nil), c.acl...)
		if acl.Chmod(c.mode); perms(acl) != c.chmod {
			t.Errorf("%s: chmod: permissions %s, expected %s", c.what, perms(acl), c.chmod)
		}
		acl = append(ACL(nil), c.acl...)
		if got := acl.Create(c.mode); got != c.create || perms(acl) != c.created {
			t.Errorf("%s: create: mode %o and permissions %s, expected %o and %s", c.what, got, perms(acl), c.create, c.created)
		}
	}
	if !minimal.Minimal() || masked.Minimal() {
		t.Error("Minimal is wrong")
	}
}

func perms(acl ACL) (s string) {
	for _, e := range acl {
		s += string(rune('0' + e.Perm))
	}
	return s
}

func FuzzDecode(f *testing.F) {
	f.Add(unhex(f, golden))
	f.Add([]byte{2, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		acl, err := Decode(b)
		if err != nil {
			return
		}
		if got := acl.Append(nil); !bytes.Equal(got, b) {
			t.Errorf("decodes to another list: %x, %x", b, got)
		}
		mode := acl.Create(0777)
		if again, err := Decode(acl.Append(nil)); err != nil || again.Mode(0) != mode {
			t.Errorf("mode %o, %v, expected %o", again.Mode(0), err, mode)
		}
	})
}
