"""The lists of chunks and events, as HTML tables."""
