"""Totals over time, reduced to as many rows as a picture has pixels, with every extreme kept."""
