"""Searches: the smallest limit that still runs, the best options, the largest batch.

A search replays one request stream many times. It takes a stream, a policy and a `SearchControl` for progress and stop;
each result of a replay is kept in a `TrialCache`. May import what `whatif` may.
"""
