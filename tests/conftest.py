"""For all tests: Hypothesis without deadlines (machines are noisy), and the same examples every time under CI."""

import os

from hypothesis import settings

settings.register_profile("bfcviz", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "bfcviz")
