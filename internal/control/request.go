package control

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
)

// RunDir holds the sockets of all mounts of this machine.
const RunDir = "/run/pmemfs"

// SocketPath is the socket of the daemon that serves mountpoint, an absolute path without symbolic links.
func SocketPath(mountpoint string) string {
	sum := sha256.Sum256([]byte(mountpoint))
	return filepath.Join(RunDir, hex.EncodeToString(sum[:8])+".sock")
}

// Request is what a client asks.
type Request struct {
	Op string `json:"op"`
}

// Reply answers it. Error is empty on success.
type Reply struct {
	Error  string  `json:"error,omitempty"`
	Status *Status `json:"status,omitempty"`
	// PoolSize is the answer to OpGrow: bytes of the pool on every copy.
	PoolSize uint64 `json:"pool_size,omitempty"`
}

// Values of Request.Op.
const (
	OpStatus = "status"
	OpSync   = "sync"
	OpGrow   = "grow"
)
