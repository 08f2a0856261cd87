"""Two recordings of about the same program compared: before and after, two settings, two commits, two ranks.

::

    A   |--- 1 ---|--- 2 ---|--- 3 ---|            moments with the same meaning are compared:
    B   |----- 1 -----|----- 2 -----|----- 3 ---   the peaks, the ends, and pairs of steps between them

In: two traces. Out: `RecordingComparison`: totals, moments, holders and growth as tables, and sentences. May import
what model may import.
"""
