package tree

import (
	"math/rand/v2"
	"testing"
)

// benchmark puts 24-byte values with an epoch every 10000 puts.
func benchmark(b *testing.B, key func(i int) Key) {
	p := newPool(b, 4096, 200_000, nil)
	tr, err := Create(p.config(), 1)
	if err != nil {
		b.Fatal(err)
	}
	v := make([]byte, 24)
	var last []uint64
	ranges := tr.Freeze(nil)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if err := tr.Put(key(i), v); err != nil {
			b.Fatal(err)
		}
		if i%10000 == 9999 {
			ranges = tr.Freeze(ranges[:0])
			p.free = append(p.free, last...)
			last = tr.TakeReplaced()
		}
	}
}

func BenchmarkPut_Sequential(b *testing.B) {
	benchmark(b, func(i int) Key { return newKey(uint64(i>>8), uint64(i)) })
}

func BenchmarkPut_Random(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	benchmark(b, func(int) Key { return newKey(rng.Uint64N(1<<20), 0) })
}

func BenchmarkGet_Random(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	p := newPool(b, 4096, 50_000, nil)
	tr, err := Create(p.config(), 1)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1 << 20 {
		if err := tr.Put(newKey(uint64(i), 0), make([]byte, 24)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if _, ok := tr.Get(newKey(rng.Uint64N(1<<20), 0)); !ok {
			b.Fatal("missing")
		}
	}
}
