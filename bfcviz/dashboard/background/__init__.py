"""Tasks beside the notebook's cells: draw frames, read event rings, play, run a workload."""
