package replicate

import (
	"context"

	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

// CreatePool makes the pool whose pool set file is name at the target ("host:port"), size bytes with its header, and leaves it
// unwritten: the first FullSync fills it. If the pool exists, errors.Is(err, fs.ErrExist); if its pool set file does not, fs.ErrNotExist.
func CreatePool(ctx context.Context, target, name string, attr wire.Attr, size uint64) error {
	m := wire.Create{Attr: attr, PoolSize: size, Pool: name}
	return ask(ctx, "create", target, name, wire.TypeCreate, m.Append(nil))
}

// RemovePool deletes the pool at the target if it is the pool uuid.
func RemovePool(ctx context.Context, target, name string, uuid poolset.UUID) error {
	m := wire.Remove{PoolUUID: uuid, Pool: name}
	return ask(ctx, "remove", target, name, wire.TypeRemove, m.Append(nil))
}

// ask sends one request on a control connection of its own.
func ask(ctx context.Context, op, target, name string, t wire.Type, body []byte) error {
	p := &Pool{target: target, name: name}
	err := p.dial(ctx)
	if err == nil {
		defer p.ctl.close()
		_, err = p.call(ctx, t, body)
	}
	return p.wrap(op, NoOffset, err)
}
