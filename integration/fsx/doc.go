// Package fsx does random operations on a few files through a mount and compares every byte read with a model in memory: an
// exerciser in the tradition of fsx, with all ways to the content that Linux has. At the end everything is fsynced, the
// initiator is killed, and the promoted replica is compared with the model as well.
//
// The process that plays is not the daemon. An operation draws its parameters from the seed and its own number, so a run with
// some operations left out does the others as before, as far as the sizes of the files allow: that is how Reduce shortens a
// failure.
package fsx
