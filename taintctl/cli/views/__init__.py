"""What people read: values in, lines out. Pure."""
