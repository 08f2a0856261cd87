"""The interface of an allocator: its protocol, options, attributes, totals and errors, and the registry of allocators.

Contains no algorithm. The heap and all wrappers import from here.
"""
