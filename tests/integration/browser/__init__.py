"""A package, so that fixtures of this scope end with the last test here: the browser, its page and its server."""
