"""The active-memory timeline: bytes in use over time, the largest allocations stacked."""
