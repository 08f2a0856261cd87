"""Answers about a trace: why a request failed, what leaks, what changed, what an event did.

Enters: a model at a step, or a trace. Leaves: the answer as data, with its sentences and its JSON beside it; never a
picture. May import the model and what it may import.
"""
