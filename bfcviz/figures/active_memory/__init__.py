"""The active-memory timeline: who held the memory, the largest allocations stacked."""
