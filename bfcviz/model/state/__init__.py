"""The state of one pool at one step: chunks, regions and totals, moved by events forwards and backwards.

In: events of one pool. Out: the tables that all pictures and explanations read.
`pool_state` and its rows are compiled where there is a compiler.
"""
