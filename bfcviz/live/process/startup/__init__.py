"""A folder that `bfcviz record` puts on PYTHONPATH: Python runs the `sitecustomize` in it as it begins.

Never imported as a package: what lies here must run in a Python that has no bfcviz.
"""
