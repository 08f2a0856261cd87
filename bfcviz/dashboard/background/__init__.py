"""Work beside the notebook's cells: drawing frames, draining event rings, playing, running a workload."""
