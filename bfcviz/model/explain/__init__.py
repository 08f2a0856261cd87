"""Explanations as data: how a request got its chunk, why it failed, the life of a chunk.

`text` turns each result into sentences.
"""
