package initiator

import (
	"context"
	"errors"
	"fmt"

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

// MakePool makes the local pool with an empty file system, and its replicas. All or nothing: what it made is removed when a
// later step fails.
func MakePool(ctx context.Context, cfg *config.Mount, set *poolset.Set, p PoolParams) error {
	attr := poolset.Attr{Signature: poolset.Signature, Major: 1, PoolUUID: poolset.NewUUID(), CopyID: poolset.NewUUID()}
	local, err := pool.Create(set, attr, pool.CreateOptions{Role: "mkpool", Sparse: p.Sparse, Erase: p.Erase, Durability: pool.Durability(cfg.Durability)})
	if err != nil {
		return err
	}
	if err := fill(local, p.Params); err != nil {
		return errors.Join(err, local.Close(), pool.Remove(set))
	}
	if err := makeReplicas(ctx, cfg, set, local); err != nil {
		return errors.Join(err, local.Close(), pool.Remove(set))
	}
	return local.Close()
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
	return errors.Join(makeReplicas(ctx, cfg, set, local), local.Close())
}

func makeReplicas(ctx context.Context, cfg *config.Mount, set *poolset.Set, local *pool.Pool) error {
	head := local.Header()
	for i, remote := range set.Replicas {
		attr := wire.Attr{Signature: head.Signature, Major: head.Major, PoolUUID: head.PoolUUID, CopyID: poolset.NewUUID()}
		err := replicate.CreatePool(ctx, cfg.Target(hostKey(remote)).Address, remote.Name, attr, head.PoolSize)
		if err == nil {
			continue
		}
		err = fmt.Errorf("replica %v: %w", remote, err)
		for _, made := range set.Replicas[:i] {
			err = errors.Join(err, replicate.RemovePool(ctx, cfg.Target(hostKey(made)).Address, made.Name, head.PoolUUID))
		}
		return err
	}
	return nil
}
