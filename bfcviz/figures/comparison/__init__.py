"""Figures of several heaps at once: they take plain data, names and arrays, and no model."""
