"""`python -m bfcviz`: the same as the command `bfcviz`."""

import sys

from bfcviz.cli import main

sys.exit(main())
