"""A folder that `bfcviz record` puts on PYTHONPATH: Python runs its `sitecustomize` at startup.

It is not imported as a package then: the code here must run in a Python without bfcviz.
"""
