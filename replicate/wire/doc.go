// Package wire encodes and decodes what initiator and target say to each other: control frames with their bodies, the
// private data of a lane's connect request, and the flush request and answer. docs/wire.md is the format; all
// integers are little-endian.
//
// Encoders and decoders are pure functions. A decoder takes exactly the bytes of one message: a byte too few or too many,
// a non-zero reserved field, an unknown flag or a wrong checksum is an error, so that what decodes encodes to the same bytes
// again. The flush messages are coded without allocation. Only ReadFrame and WriteFrame do I/O; the caller sets
// the deadlines of the connection.
package wire
