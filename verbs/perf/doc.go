// Package perf measures a connection between two machines, over any provider: latency and bandwidth of WRITEs and READs.
//
// It measures what the programs of the package perftest measure, so that a provider can be compared with them on the same device:
//
//   - WRITE latency, as ib_write_lat: both sides WRITE in turn, wait for the completion, and look at their own memory for the bytes of the other. The
//     figure is half of a round trip.
//   - READ latency, as ib_read_lat: one READ after the other, each until its completion. The figure is the round trip.
//   - WRITE+READ: both in one batch, until the completion of the READ, which proves that the WRITE is placed. perftest has nothing like it. The figure
//     is the round trip: what a WRITE costs that must have arrived.
//   - WRITE and READ bandwidth, as ib_write_bw and ib_read_bw: a window of work requests in flight, of which few are signaled, all from
//     and to the same memory. A round ends with the last completion, a round of WRITEs with that of a READ behind them.
//
// One side serves (Serve), the other measures (Run). Serving costs a CPU only during WRITE latency, or if the client asks for a server that polls all
// the time, as those of perftest do: that keeps its processor awake, which answers READs sooner if it has to do that itself. The loops that are measured allocate nothing.
//
// # Messages
//
// The connection request has 24 bytes of private data, its acceptance too: magic "PMFPERF1", address u64 and key u32 of the region where WRITEs go
// and READs come from (MaxSize bytes), zero u32. A Send of 24 bytes asks for an exchange of WRITEs: size u32, number u32, sequence number
// of the first u64, u32 1 if the server is to poll without ever sleeping, zero u32; an empty Send says that the server is ready. The number may be 0.
// The server answers each WRITE whose last 8 bytes hold the sequence number that is due with the same. It polls until the next request, or until the client has been
// silent for 10 s, and not at all where its process has one processor. All integers are little-endian.
package perf
