package poolset

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
)

// Limits in bytes of the parts of a target address, those of librpmem.
const (
	maxUser = 32
	maxHost = 255
	maxName = 255
)

// String returns the address as a pool set writes it, without the name of the pool.
func (r Replica) String() string {
	s := r.Host
	if strings.Contains(s, ":") {
		s = "[" + s + "]"
	}
	if r.User != "" {
		s = r.User + "@" + s
	}
	if r.Port != 0 {
		s += ":" + strconv.Itoa(int(r.Port))
	}
	return s
}

// parseReplica takes [user@]host[:port]. An IPv6 address with a port stands in brackets; two or more colons without
// brackets are an address without a port.
func parseReplica(addr, name string) (Replica, error) {
	var r Replica
	if err := CheckName(name); err != nil {
		return r, err
	}
	r.Name = name
	rest := addr
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		r.User, rest = rest[:i], rest[i+1:]
		if r.User == "" || len(r.User) > maxUser || strings.Contains(r.User, "@") {
			return r, fmt.Errorf("the user must have 1 to %d characters", maxUser)
		}
	}
	host, port, hasPort, err := splitPort(rest)
	if err != nil {
		return r, err
	}
	if r.Host = host; !validHost(host) {
		return r, fmt.Errorf("%q is not a host name or address", host)
	}
	if hasPort {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '+' {
			return r, fmt.Errorf("port %q is not a number from 1 to 65535", port)
		}
		r.Port = uint16(n)
	}
	return r, nil
}

func splitPort(s string) (host, port string, hasPort bool, err error) {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		host, rest, closed := strings.Cut(inner, "]")
		port, hasPort := strings.CutPrefix(rest, ":")
		if !closed || !hasPort && rest != "" || !isIPv6(host) {
			return "", "", false, errors.New("an IPv6 address in brackets must end with ] or ]:port")
		}
		return host, port, hasPort, nil
	}
	if strings.Count(s, ":") >= 2 {
		if !isIPv6(s) {
			return "", "", false, errors.New("several colons, but not an IPv6 address")
		}
		return s, "", false, nil
	}
	host, port, hasPort = strings.Cut(s, ":")
	return host, port, hasPort, nil
}

func isIPv6(s string) bool {
	a, err := netip.ParseAddr(s)
	return err == nil && a.Is6()
}

func validHost(s string) bool {
	if isIPv6(s) {
		return true
	}
	for _, c := range s {
		if c > unicode.MaxASCII || !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("-._", c) {
			return false
		}
	}
	return s != "" && s[0] != '-' && len(s) <= maxHost
}

// CheckName reports why name cannot be the name of a pool on a target: a name is a relative path that stays below the
// directory in which the target keeps its pool sets.
func CheckName(name string) error {
	switch {
	case name == "" || len(name) > maxName:
		return fmt.Errorf("the name of a pool must have 1 to %d bytes", maxName)
	case !filepath.IsLocal(name) || filepath.Clean(name) != name || name == ".":
		return fmt.Errorf("the name of a pool must be a relative path without . and .., not %q", name)
	case strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }):
		return fmt.Errorf("the name of a pool must be printable, not %q", name)
	}
	return nil
}
