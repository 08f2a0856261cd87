"""For all tests: Hypothesis without deadlines (machines are noisy), and the same examples every time under CI.

Where bfcviz is not compiled the tests pass as well, in their time; who runs them need not be told so by every process.
"""

import os
from importlib.util import find_spec

from hypothesis import settings

if find_spec("bfcviz._heap") is None:
    os.environ["BFCVIZ_UNCOMPILED"] = "1"

settings.register_profile("bfcviz", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "bfcviz")
