"""The ledger of an observed heap: derives regions, splits and merges from its allocations and frees."""
