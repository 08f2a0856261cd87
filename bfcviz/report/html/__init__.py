"""A report as one page of HTML: no script, nothing from a network; it follows the reader's light or dark colours."""
