// Package pmemtest is simulated persistent memory: a pmem.Region that knows what a crash may leave of it.
//
// # Model
//
// The program under test stores to Bytes as it likes. At each event (Flush, Fence, Store64, Sync, Observe) the bytes are
// compared with those at the event before, unit by unit, and each unit that differs gets one more version. Since memory is
// compared, and no store is intercepted, a flush that was forgotten is seen.
//
// In mode Lines a unit is a cache line of 64 bytes. Flush says that the present version of the lines of its ranges is on its way
// to the medium; Fence makes it the base version, and drops those before it. In mode Pages a unit is a sector of 512 bytes, which
// the kernel may write at any moment, and Flush is msync of the pages from the first to the last of its ranges: it makes their
// present version the base at once. In mode EADR a unit is a cache line too, and Fence makes the present version of all lines the base, flushed or not.
//
// What a device stores into the region is compared like everything else, so a flush by the CPU makes it certain as well. Arrived says that
// it has reached the persistence domain by itself: which is the affair of whoever simulates the device (verbs/verbstest).
//
// After a crash each unit holds its base version or any later one, whatever the others hold. Images enumerates such choices.
// Stores between two events count as one; a torn image takes each 8-byte word of a unit from either of two adjacent versions.
//
// A Region and its images belong to one goroutine.
package pmemtest
