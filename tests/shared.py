"""Where the shared data lies (golden traces, real files): beside the repository, or nowhere."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared beside this checkout")
