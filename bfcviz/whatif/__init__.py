"""What if: the requests of a trace served again under other rules."""
