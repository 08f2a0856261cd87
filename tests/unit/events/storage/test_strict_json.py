"""JSON texts that Python would accept, or that would fill the memory."""

import pytest

from bfcviz.errors import FileError
from bfcviz.importers.open_trace import open_trace


def test_numbers_without_end_are_refused(folder):
    text = (folder / "origin.json").read_text()
    (folder / "origin.json").write_text(text.replace('"details": {', '"details": {"x": 1e999'))
    with pytest.raises(FileError, match="JSON number"):
        open_trace(folder)
