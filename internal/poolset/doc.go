// Package poolset reads what describes a pool: the pool set file, and the pool header with its two state slots.
//
// # Pool set file
//
// The grammar is that of PMDK's poolset(5), less what pmemfs does not do:
//
//	PMEMPOOLSET                          the first line, exactly
//	OPTION SINGLEHDR                     accepted: every pool has one header
//	10G /mnt/pmem0/pool.part0            SIZE and absolute PATH of a part; AUTO takes the size of the existing file
//	AUTO /dev/dax1.0                     a Device DAX, which is always taken whole
//	REPLICA user@host:port name          a target, and the name of the pool there; an IPv6 address stands in brackets
//	# comment                            to the end of the line
//
// Parts come before the targets. The usable size of a part is its size rounded down to whole blocks. Local replicas (a
// REPLICA line of its own), directories as parts, and the option NOHDRS are refused, each with its line.
//
// # Header and state
//
// The layout is written down in docs/format.md, section 1. Encode and Decode work on plain bytes; package pool keeps the
// order of durable steps.
package poolset
