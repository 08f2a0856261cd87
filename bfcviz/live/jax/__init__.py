"""JAX: its live arrays and its totals, polled."""
