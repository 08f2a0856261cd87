"""Explanations as sentences: one module for each kind of result in `bfcviz.model.explain`."""
