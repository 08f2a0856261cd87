"""Jump to any step of a trace in bounded time, from the nearest saved state."""
