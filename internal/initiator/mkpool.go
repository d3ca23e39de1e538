package initiator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pmemfs/pmemfs/fs/volume"
	"github.com/pmemfs/pmemfs/internal/config"
	"github.com/pmemfs/pmemfs/internal/pool"
	"github.com/pmemfs/pmemfs/internal/poolset"
	"github.com/pmemfs/pmemfs/replicate"
	"github.com/pmemfs/pmemfs/replicate/wire"
)

// PoolParams are the choices of mkpool.
type PoolParams struct {
	Sparse bool
	Erase  bool          // also what a local Device DAX holds
	Params volume.Params // PoolUUID and HashKey are chosen here
}

// removeTimeout bounds the removal of replicas that were made in vain.
const removeTimeout = 10 * time.Second

// MakePool makes the local pool with an empty file system, and its replicas. All or nothing: what it made is removed when a
// later step fails. Replicas come first, so that a target that refuses is known before a local device is erased.
func MakePool(ctx context.Context, cfg *config.Mount, set *poolset.Set, p PoolParams) error {
	attr := poolset.Attr{Signature: poolset.Signature, Major: 1, PoolUUID: poolset.NewUUID(), CopyID: poolset.NewUUID()}
	var replicas []poolset.Replica // made so far
	local, err := pool.Create(set, attr, pool.CreateOptions{Role: "mkpool", Sparse: p.Sparse, Erase: p.Erase, Durability: pool.Durability(cfg.Durability),
		Ready: func(head poolset.Header) error {
			if err := p.Params.Check(head.PoolSize); err != nil {
				return err
			}
			if err := makeReplicas(ctx, cfg, set, head); err != nil {
				return err
			}
			replicas = set.Replicas
			return nil
		}})
	if err == nil {
		if err = fill(local, p.Params); err == nil {
			return local.Close()
		}
		err = errors.Join(err, local.Close(), pool.Remove(set))
	}
	return errors.Join(err, removeReplicas(ctx, cfg, replicas, attr.PoolUUID))
}

// fill makes the file system. Durable order: first the volume, then the state that makes the copy a primary.
func fill(local *pool.Pool, params volume.Params) error {
	head := local.Header()
	params.PoolUUID = head.PoolUUID
	params.HashKey, params.Now = poolset.NewUUID(), now()
	if err := volume.Format(local.Region(), params); err != nil {
		return err
	}
	return local.SetState(func(s *poolset.State) {
		s.Writer, s.Gen, s.Flags = head.CopyID, randomGeneration(), s.Flags|poolset.Clean
	})
}

// MakeReplicas makes the replicas of a pool that exists. Its next mount fills them.
func MakeReplicas(ctx context.Context, cfg *config.Mount, set *poolset.Set) error {
	local, err := pool.Open(set, pool.OpenOptions{Role: "mkpool", Durability: pool.Durability(cfg.Durability), Wait: lockTimeout})
	if err != nil {
		return err
	}
	return errors.Join(makeReplicas(ctx, cfg, set, local.Header()), local.Close())
}

// makeReplicas makes the replicas of the pool with this header, all or none.
func makeReplicas(ctx context.Context, cfg *config.Mount, set *poolset.Set, head poolset.Header) error {
	for i, remote := range set.Replicas {
		attr := wire.Attr{Signature: head.Signature, Major: head.Major, PoolUUID: head.PoolUUID, CopyID: poolset.NewUUID()}
		err := replicate.CreatePool(ctx, cfg.Target(hostKey(remote)).Address, remote.Name, attr, head.PoolSize)
		if err != nil {
			return errors.Join(fmt.Errorf("replica %v: %w", remote, err), removeReplicas(ctx, cfg, set.Replicas[:i], head.PoolUUID))
		}
	}
	return nil
}

// removeReplicas takes back what was made, also when the user has interrupted the rest.
func removeReplicas(ctx context.Context, cfg *config.Mount, made []poolset.Replica, uuid poolset.UUID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	var errs []error
	for _, remote := range made {
		errs = append(errs, replicate.RemovePool(ctx, cfg.Target(hostKey(remote)).Address, remote.Name, uuid))
	}
	return errors.Join(errs...)
}
