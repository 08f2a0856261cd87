"""Messages between a browser page and the Inspector: the script in the page, and how Python handles a message."""
