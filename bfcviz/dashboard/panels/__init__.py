"""The figure of a dashboard: its panels, their layout, their data, and the part of the heap they show."""
