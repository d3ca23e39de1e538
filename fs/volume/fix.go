package volume

// fix is what a repair does about a finding.
type fix struct {
	kind fixKind
	ino  Ino
	num  uint64 // what a number of the inode, or of the pool, must be
}

type fixKind uint8

const (
	noFix          fixKind = iota
	fixSuper               // write the older super slot anew
	fixLinks               // set the link count to num
	fixParent              // set the parent of a directory to num
	fixBlocks              // set the block count to num
	fixInodes              // set the number of inodes to num
	fixOrphan              // drop the ORPHAN key of an inode that does not exist
	fixUnreachable         // give it a name in lost+found
)
