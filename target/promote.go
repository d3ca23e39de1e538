package target

import (
	"errors"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/pmemfs/pmemfs/internal/config"
)

// dyingWait is how long a promotion without a daemon waits for a daemon that is about to end.
const dyingWait = 10 * time.Second

// ErrNoDaemon: no daemon listens on the admin socket.
var ErrNoDaemon = errors.New("target: no pmemfs-target is running here")

// PromoteVia asks the daemon at socket to make its copy of the pool called name the primary, and returns the new term. When it
// returns no initiator can change the copy any more, all of it is persistent, and the daemon has let go of it. Force
// promotes also a copy that may lack acknowledged bytes. A refusal is a *Refusal; ErrNoDaemon is wrapped if nobody listens.
func PromoteVia(socket, name string, force bool) (term uint64, err error) {
	reply, err := call(socket, AdminRequest{Op: OpPromote, Pool: name, Force: force})
	if err != nil {
		return 0, err
	}
	return reply.Term, nil
}

// Promote does the same where no daemon runs. It holds the lock of the pool meanwhile, and waits a while for a daemon that is
// about to end.
func Promote(cfg *config.Target, name string, force bool, log logrus.FieldLogger) (term uint64, err error) {
	s, err := newServer(cfg, nil, log)
	if err != nil {
		return 0, err
	}
	s.lockWait = dyingWait
	return s.promote(name, force)
}
