"""The bin histogram: free and used bytes of each of the 21 size classes."""
