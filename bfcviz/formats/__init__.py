"""Formats: what the allocator of each framework does, written once, a file each.

Enters: the settings of an allocator, as a file or the framework has them. Leaves: its rules, as plain numbers.
Observers, importers, diagnoses and policies read the rules here. May import: errors and units.
"""
