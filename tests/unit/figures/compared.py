"""Policies for tests of figures, as plain data."""

import numpy as np

from bfcviz.figures.policy_comparison import DrawnJob, DrawnPolicy

MiB = 1 << 20
JOB = DrawnJob("a job", 5, 5 * MiB, 16 * MiB)


def _bytes(*sizes):
    return np.array(sizes, np.uint64) * np.uint64(MiB)


FITS = DrawnPolicy(
    "fits", _bytes(8, 12, 12, 12, 4), _bytes(4, 8, 6, 2, 0), requested_at_peak=6 * MiB, scattered_share=0.25
)
FAILS = DrawnPolicy(
    "fails:option=1",
    _bytes(8, 16, 16, 16),
    _bytes(4, 8, 6, 6),
    requested_at_peak=6 * MiB,
    scattered_share=0.5,
    failed=3,
    failed_size=7 * MiB,
)
REFUSED = DrawnPolicy("refused", _bytes(), _bytes(), message="needs a limit <b>")
