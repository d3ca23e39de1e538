package fs

import (
	"errors"
	"fmt"
	"log"
	"os"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	// maxRequest is the largest READ and WRITE in bytes.
	maxRequest = 1 << 20
	// maxBackground bounds the requests that the kernel sends on its own account: read-ahead, write-back, O_DIRECT parts.
	maxBackground = 64
	// answerTimeout bounds every wait for the kernel or for a mount to answer.
	answerTimeout = 30 * time.Second
)

// extraCapabilities are asked for beyond go-fuse's defaults (include/uapi/linux/fuse.h).
//
//   - HANDLE_KILLPRIV_V2: without it each write(2) first asks for security.capability.
//   - READDIRPLUS_AUTO: attributes come with the entries only while somebody looks at them.
//   - ASYNC_DIO: parts of one O_DIRECT request run side by side.
//   - DIRECT_IO_ALLOW_MMAP: shared mappings of a file opened for O_DSYNC writes.
//   - EXPORT_SUPPORT: open_by_handle_at(2) finds inodes that the kernel has dropped.
//   - DONT_MASK: the umask comes with the request, since a default ACL takes its place.
//   - SETXATTR_EXT: the kernel says whether a new ACL must clear set-group-id.
const extraCapabilities = fuse.CAP_DONT_MASK | fuse.CAP_SETXATTR_EXT | fuse.CAP_HANDLE_KILLPRIV_V2 | fuse.CAP_READDIRPLUS_AUTO | fuse.CAP_ASYNC_DIO |
	fuse.CAP_DIRECT_IO_ALLOW_MMAP | fuse.CAP_EXPORT_SUPPORT

// ErrMounted means that a living pmemfs already stands on the mount point.
var ErrMounted = errors.New("already mounted; unmount it first")

// Mounted is a file system that answers. Its goroutines are those of go-fuse; they end when the file system has been unmounted,
// by Unmount, Abort or umount(8), and Serve returns after the last of them.
type Mounted struct {
	*Server
	point string
	done  chan struct{} // closed when no request is under way and none can come
}

// Mount mounts the volume on the directory point and returns once the mount answers. It needs CAP_SYS_ADMIN. A dead mount of
// an earlier pmemfs on the same directory is removed first. On error nothing stays mounted.
func Mount(cfg Config, point string) (*Mounted, error) {
	point, err := FreePoint(point, cfg.Options.NonEmpty)
	if err != nil {
		return nil, err
	}
	s := NewServer(cfg)
	kernel, err := fuse.NewServer(s, point, s.mountOptions(&cfg))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mount %s: %w", point, explain(err)), clearPoint(point, true))
	}
	m := &Mounted{Server: s, point: point, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		kernel.Serve()
	}()
	if err := within(answerTimeout, kernel.WaitMount); err != nil {
		return nil, errors.Join(fmt.Errorf("mount %s: the mount does not answer: %w", point, err), m.Abort())
	}
	s.tuneWriteback(point)
	return m, nil
}

// FreePoint resolves a mount point and makes it fit for Mount, which does the same: whoever has much to do before a mount asks
// early. The mount of a daemon that died is removed; with nonEmpty the directory may hold files. Errors: ErrMounted, ENOTDIR,
// ENOTEMPTY and those of stat(2). It is bounded, since a mount on the directory may hang.
func FreePoint(point string, nonEmpty bool) (string, error) {
	real := point
	err := within(answerTimeout, func() (err error) {
		if real, err = resolve(point); err != nil {
			return err
		}
		return clearPoint(real, nonEmpty)
	})
	if err != nil {
		return "", fmt.Errorf("mount %s: %w", point, err)
	}
	return real, nil
}

// explain adds to a failed mount what the errno does not say.
func explain(err error) error {
	if _, noDevice := os.Stat("/dev/fuse"); noDevice != nil {
		return fmt.Errorf("%w: load the fuse module, or give the container the device /dev/fuse", noDevice)
	}
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: mounting needs root (CAP_SYS_ADMIN)", err)
	}
	return err
}

func (s *Server) mountOptions(cfg *Config) *fuse.MountOptions {
	o := &cfg.Options
	kernelOptions := []string{"default_permissions"}
	if o.MaxRead != 0 {
		kernelOptions = append(kernelOptions, fmt.Sprintf("max_read=%d", o.MaxRead))
	}
	flags := o.flags()
	if flags == 0 {
		flags = unix.MS_MGC_VAL // go-fuse takes zero for nosuid,nodev; the kernel ignores this value, see mount(2)
	}
	return &fuse.MountOptions{
		Name:                     Type,
		FsName:                   o.FSName,
		AllowOther:               true,
		Options:                  kernelOptions,
		DirectMountStrict:        true,
		DirectMountFlags:         flags,
		MaxWrite:                 maxRequest,
		MaxBackground:            maxBackground,
		ExplicitDataCacheControl: true,
		EnableAcl:                true, // the kernel asks for ACLs and checks them
		EnableSymlinkCaching:     true, // the target of a symlink never changes
		ExtraCapabilities:        extraCapabilities,
		DisableSplice:            true, // go-fuse would fill a pipe for each READ, only to find that there is no descriptor to splice from
		Debug:                    cfg.Debug,
		Logger:                   log.New(&s.log, "", 0),
		PanicHandler:             endProcess,
	}
}

// endProcess answers a panic of a handler with another one, which nobody recovers. go-fuse would turn the first into EIO
// while the handler's locks stay held; see the package documentation.
func endProcess(cause any) fuse.Status { panic(cause) }

// Serve returns when the file system has been unmounted and the last request is answered. After it the volume is the caller's
// alone.
func (m *Mounted) Serve() { <-m.done }

// Done is closed when Serve would return.
func (m *Mounted) Done() <-chan struct{} { return m.done }

// Unmount removes the mount and waits for the last request. A mount in use stays, and the error wraps EBUSY. The kernel sends
// no request that asks for durability: the caller runs Committer.SyncAll afterwards, when no change can come any more.
func (m *Mounted) Unmount() error {
	err := m.remove(0)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w: close its files and leave its directories (fuser -m shows who), then try again", err)
	}
	return err
}

// Abort removes the mount from sight at once and ends it for the programs that still use it: their requests fail with ENOTCONN
// or ECONNABORTED. Requests that have reached the server finish.
func (m *Mounted) Abort() error { return m.remove(unix.MNT_FORCE | unix.MNT_DETACH) }

func (m *Mounted) remove(flags int) error {
	select {
	case <-m.done: // by somebody else; what stands on the directory now is not ours
		return nil
	default:
	}
	if err := unix.Unmount(m.point, flags); err != nil {
		return fmt.Errorf("unmount %s: %w", m.point, err)
	}
	select {
	case <-m.done:
		return nil
	case <-time.After(answerTimeout):
		return fmt.Errorf("unmount %s: a request is still under way after %v: %w", m.point, answerTimeout, syscall.ETIMEDOUT)
	}
}

// within runs f and waits for it no longer than d. A call that the kernel does not answer cannot be taken back; its
// goroutine ends when the mount does.
func within(d time.Duration, f func() error) error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	select {
	case err := <-result:
		return err
	case <-time.After(d):
		return fmt.Errorf("no answer within %v: %w", d, syscall.ETIMEDOUT)
	}
}
