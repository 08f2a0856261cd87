"""Several allocators that served the same requests: peaks, fragmentation, bytes over the job, region maps.

Enter: plain data (`ComparedPolicy`) and traces. Leave: a `Picture`. May import what figures may.
"""
