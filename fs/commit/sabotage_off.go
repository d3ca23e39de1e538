//go:build !sabotage_drain

package commit

// wrap returns the targets as they are. A build with the tag sabotage_drain answers for them before they have been
// asked, so that the demo can show that it notices.
func (c *Committer) wrap(targets []Copy) []Copy { return targets }
