"""The ledger of a heap that is only observed: from its allocations and frees to regions, splits and merges."""
