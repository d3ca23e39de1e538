// Package layout knows the bytes of a pool as docs/format.md describes them: keys, super slots, values, log records and
// their operations. It is pure functions on bytes, with no state and no input or output.
//
// Encoders write into memory of the caller, or append to a slice of the caller, and allocate nothing else. Decoders take
// bytes of any length and content: what does not fit the format is an error that wraps ErrCorrupt, never a panic.
// A decoded value with byte slices refers to the input and lives as long as that.
//
// All integers are little-endian.
package layout
