"""Chunks as pixels: the cost depends on the pixels, not on the number of chunks. `cells` is compiled."""
