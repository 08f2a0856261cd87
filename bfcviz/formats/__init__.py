"""Formats: what the allocator of each framework does, written once, a file each.

Enters: the settings of an allocator, as a file, a variable or the framework has them. Leaves: its rules (rounding,
splits, growth), as plain numbers and functions, the words of its settings, and the grammar of its files.
Observers, importers, diagnoses, policies and devices read the rules here. Where compiled code repeats a rule for speed,
a test compares the two. May import: errors, units and stack_frames; never NumPy, so that the command line starts fast.
"""
