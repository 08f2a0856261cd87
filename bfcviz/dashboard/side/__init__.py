"""The side pane, right of the region map: who holds the memory, and the selected chunk, as HTML."""
