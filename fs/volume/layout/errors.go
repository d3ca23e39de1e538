package layout

import (
	"errors"
	"fmt"
)

// ErrCorrupt is wrapped by every error of a decoder in this package and in the packages that read trees and logs.
var ErrCorrupt = errors.New("corrupt pool")

// corrupt makes an error that names what was read, where, and what is wrong with it.
func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}
