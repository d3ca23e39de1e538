// Package inspect takes files out of a volume that nobody has mounted: listings, contents, a whole tree. It works on a volume
// opened with volume.OpenReadOnly, also one that is damaged: what cannot be read is reported, and the rest is given.
//
// Paths are those of the file system in the pool, from its root. No symbolic link is followed.
package inspect
