// Command hello keeps a greeting in the persistent memory of another machine, and translates it each time it runs.
//
// It is the hello world of replication by librpmem: the first run makes a pool at the target and writes an English greeting,
// every later run reads the greeting back, translates it, and writes it again. What it writes is durable at the target when it prints it.
//
// The target needs a pool set file named pool.set in its pool directory:
//
//	PMEMPOOLSET
//	32M /mnt/pmem1/pool2
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/pmemfs/pmemfs/replicate"
	"github.com/pmemfs/pmemfs/replicate/wire"
	"github.com/pmemfs/pmemfs/verbs/provider"
)

const (
	poolSize = 32 << 20
	// helloOff is where user space begins: the first 4096 bytes of a pool are its header.
	helloOff = 4096
	textSize = 100
	// helloSize is a greeting: u32 language, little-endian, and its text in UTF-8, filled up with zeros.
	helloSize = 4 + textSize
)

// greetings by language: 0 English, 1 Spanish.
var greetings = []string{"Hello world!", "¡Hola Mundo!"}

func put(b []byte, lang uint32) {
	clear(b[:helloSize])
	binary.LittleEndian.PutUint32(b, lang)
	copy(b[4:helloSize], greetings[lang])
}

// openPool makes the pool, or opens it if it exists.
func openPool(ctx context.Context, client *replicate.Client, target, name string, memory []byte) (pool *replicate.Pool, created bool, err error) {
	attr := wire.Attr{Major: 1}
	copy(attr.Signature[:], "HELLO")
	pool, err = client.Create(ctx, target, name, memory, 1, attr)
	if errors.Is(err, fs.ErrExist) {
		pool, err = client.Open(ctx, target, name, memory, 1)
		return pool, false, err
	}
	return pool, true, err
}

// hello writes the next greeting and returns its text.
func hello(ctx context.Context, client *replicate.Client, target, name string) (string, error) {
	memory := make([]byte, poolSize)
	pool, created, err := openPool(ctx, client, target, name, memory)
	if err != nil {
		return "", err
	}
	lang, err := greet(pool, memory[helloOff:helloOff+helloSize], created)
	if err = errors.Join(err, pool.Close(ctx)); err != nil {
		return "", err
	}
	return greetings[lang], nil
}

// greet makes the next greeting durable. message is its place in the local memory.
func greet(pool *replicate.Pool, message []byte, created bool) (lang uint32, err error) {
	if !created {
		if err := pool.Read(message, helloOff, 0); err != nil {
			return 0, err
		}
		lang = (binary.LittleEndian.Uint32(message) + 1) % uint32(len(greetings))
	}
	put(message, lang)
	return lang, pool.Persist(helloOff, helloSize, 0)
}

func main() {
	target := flag.String("target", "127.0.0.1:7470", "control address of the target, `host:port`")
	name := flag.String("pool", "pool.set", "`name` of the pool set file in the target's pool directory")
	rdma := flag.String("provider", provider.IWARP, "RDMA `provider`: iwarp or ibverbs")
	memory := flag.Bool("memory", false, "accept a target whose pool survives only the death of its process, such as one on tmpfs")
	flag.Parse()
	if err := run(provider.Options{Name: *rdma, Addr: *target, GID: provider.AnyGID}, *target, *name, *memory); err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
}

func run(opt provider.Options, target, name string, memory bool) (err error) {
	device, err := provider.Open(opt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	client := &replicate.Client{Device: device, Durability: wire.DurabilityMedia}
	if memory {
		client.Durability = wire.DurabilityMemory
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	text, err := hello(ctx, client, target, name)
	if err != nil {
		return err
	}
	fmt.Println(text)
	return nil
}
