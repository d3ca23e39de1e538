// Package tree is the copy-on-write B+tree of a pool, used in place from the mapped bytes. Section 4 of docs/format.md
// shows a node.
//
// # Epochs
//
// A node born in the open epoch is edited with plain stores: no durable state reaches it. An older one is immutable. Before
// an edit it is copied to a new node, and so is its path to the root, once per epoch; what the copies replace is collected
// for the owner, see TakeReplaced. A node of the open epoch that is no longer needed goes back through Nodes.FreeNode at
// once. Freeze ends the epoch: it stores the CRCs and names the ranges to be made persistent, and from then on those nodes
// are immutable.
//
// Parents hold the birth of each child, and no child is younger than its parent. So the nodes of an epoch are found from
// the root.
//
// # Shape
//
// Leaves are split so that ascending keys leave full leaves behind; inner nodes are split in the middle. A node less than
// a quarter full is merged with a neighbour under the same parent if both together fill at most three quarters of one; an
// empty one always is.
// A leaf stays empty if it is its parent's only child. The key of slot 0 of an inner node equals the key of its own slot
// in its parent, and is zero on the left spine.
//
// # Errors
//
// A change that returns an error changed nothing. In particular all nodes that it needs are taken before the first store.
// A damaged node is found where it is entered: place, header and bounds are checked each time, all slots and the CRC by Walk and
// before the node is copied or rearranged, the CRC also the first time after ProveNodes. Get, Floor and Ascend have no error result: they treat what a damaged
// node holds as missing, and Err tells from then on which node it was.
//
// # Concurrency
//
// A Tree is not safe for concurrent use, but readers (Get, Floor, Ascend, Walk, Err and the plain getters) may run in parallel
// with each other. Values handed out are views of the mapped bytes, valid until the next change; values handed in must not
// be such views.
package tree
