package crash

import "time"

// Reduce leaves operations out as long as the run still fails, and returns the failure of the shortest list found. It tries at most
// so many runs, for about that time.
func Reduce(f *Failure, runs int, limit time.Duration) *Failure {
	until := time.Now().Add(limit)
	cfg := f.Config
	keep := make([]bool, len(cfg.Ops))
	for i := range keep {
		keep[i] = (cfg.Keep == nil || cfg.Keep[i]) && i <= f.Step
	}
	best := f
	for chunk := max(len(keep)/2, 1); ; chunk /= 2 {
		for at := 0; at < len(keep) && runs > 0 && time.Now().Before(until); at += chunk {
			if shorter := without(keep, at, chunk); shorter != nil {
				runs--
				cfg.Keep = shorter
				if g := Run(cfg, new(Counts)); g != nil {
					keep, best = shorter, g
				}
			}
		}
		if chunk == 1 || runs == 0 || time.Now().After(until) {
			return best
		}
	}
}

// without is keep without n operations from at on, nil if there are none.
func without(keep []bool, at, n int) []bool {
	out := append([]bool(nil), keep...)
	any := false
	for i := at; i < min(at+n, len(out)); i++ {
		any = any || out[i]
		out[i] = false
	}
	if !any {
		return nil
	}
	return out
}

// Kept are the operations that a run does.
func (c Config) Kept() string {
	var ops []Op
	for i, o := range c.Ops {
		if c.Keep == nil || c.Keep[i] {
			ops = append(ops, o)
		}
	}
	return list(ops)
}
