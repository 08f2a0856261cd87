"""The page of `bfcviz view` and `bfcviz attach`: a server, and the process that becomes its first kernel."""
