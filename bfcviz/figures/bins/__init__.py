"""The bin histogram: bytes and number of chunks, free and in use, of each of the 21 size classes."""
