"""Messages between a browser page and the Inspector: the script in the page, and what Python does with a message."""
