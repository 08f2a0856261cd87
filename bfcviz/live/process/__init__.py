"""Record a program that does not import bfcviz, from its start."""
