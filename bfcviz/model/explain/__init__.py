"""Explanations as data: how a request was served, why it failed, what a chunk went through.

`text` turns each result into sentences.
"""
