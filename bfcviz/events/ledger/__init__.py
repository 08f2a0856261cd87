"""The bookkeeper of a heap that is only observed: from its allocations and frees to events with regions, splits and merges."""
