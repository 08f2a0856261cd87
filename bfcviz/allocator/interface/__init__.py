"""What users of an allocator see: its protocol, options, attributes, totals and errors.

Knows no algorithm. The heap and all wrappers import from here.
"""
