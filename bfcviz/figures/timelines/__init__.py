"""Timelines: totals, fragmentation and event rate of a heap over steps or time, with marks, phases and OOMs."""
