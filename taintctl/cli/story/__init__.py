"""The stories that `taintctl demo` shows: a sandbox, the real controller, and every step asserted."""
