// Package control is how `pmemfs sync`, `status` and `umount` talk to the daemon of a mount: one JSON object per line over a unix
// socket in RunDir that only root may open. One request per connection, every step with a deadline.
package control
