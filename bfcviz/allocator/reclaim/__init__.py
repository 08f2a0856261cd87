"""Return free memory: whole regions to the sub-allocator, pages of free chunks to the operating system."""
