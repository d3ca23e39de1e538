// Package oplog is the ring of log records, see docs/format.md, section 3: Log appends records on the primary, Scan reads
// them back at recovery on any copy.
//
// # Order of durable steps
//
// Append stores all of a record but its seal word into the mapped ring. Then, for each copy: 1 the ranges that it
// returns, and all data that the record maps, are made persistent; 2 the seal is stored and made persistent. Before 2 the
// record does not count, after it all that it says is there.
//
// # Why nothing stale counts
//
// Append clears nothing, so a record's place may hold the seal word of an older one while its other bytes are new. That
// word carries the low half of the older record's number, which is not the expected one, since a ring never holds 2^32
// records. Only where a record was rewound or never acknowledged can the place hold a seal for the same number; then it is
// a checksum over other bytes, which matches by a chance of 2^-32. And no whole record of an older term or of another
// chain follows a newer one: its prev_seal is not the seal of that.
//
// # Space
//
// The owner says with Release where the part begins that a durable super slot still needs. A record is taken in only if
// at least 64 bytes stay free after it, so that a full ring differs from an empty one.
//
// A Log is not safe for concurrent use, allocates nothing, and does not guard against faults of mapped memory.
package oplog
