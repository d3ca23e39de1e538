package crash

import "runtime/debug"

// stack is that of the panic under way.
func stack() []byte { return debug.Stack() }
