"""Recording a program that knows nothing of bfcviz, from its start."""
