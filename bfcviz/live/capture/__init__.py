"""What is recorded with an allocation: labels, marks, Python stacks."""
