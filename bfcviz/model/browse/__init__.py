"""Find events and chunks: steps worth going to, filters, sort orders."""
