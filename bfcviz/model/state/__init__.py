"""The state of one pool at one step: chunks, regions and totals. Events move it forwards and backwards.

Enters: events of one pool. Leaves: the arrays that all pictures and explanations read.
`pool_state` and its rows are compiled where there is a compiler.
"""
