"""Sweeps: many traces under many policies and limits, in this process, on local processes, or on a Dask cluster.

Paths, traces or request streams, policies and limits enter; one `PointResult` of numbers for each (trace, policy,
limit) leaves. A worker reads each trace once. May import what `whatif` may; Dask and fsspec inside functions only.
"""
