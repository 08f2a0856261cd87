"""Timelines of a heap's totals, and what is marked on them."""
