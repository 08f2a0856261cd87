"""What several frameworks need: heaps made on demand, frees that must wait, limits, polling."""
