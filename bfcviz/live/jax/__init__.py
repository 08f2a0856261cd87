"""JAX: its totals, polled."""
