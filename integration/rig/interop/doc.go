// Package interop has the tests in which verbs/iwarp, which is pure Go, talks to Linux siw, driven by verbs/ibverbs. They need siw, so the
// job interop of integration/rig builds them with the tag rdma and runs them in its guest, with flags that say where siw is. The process
// is in the network namespace of siw; the sockets of verbs/iwarp are made in another one, which has no RDMA device.
package interop
