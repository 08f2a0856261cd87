"""Several policies on the same requests: a table of measures, and the table as text.

Enter: a `RequestStream` and policies. Leave: a `Comparison` and texts. May import what whatif may.
"""
