"""Free chunks: the ladder of their sizes, and the 21 size classes with their bytes and counts."""
