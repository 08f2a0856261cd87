"""Totals over time, in as many rows as a picture has pixels; every extreme is kept."""
