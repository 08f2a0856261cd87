"""JSON texts that Python would accept, or that would fill the memory."""

import pytest
from unit.events.fabricate import alike, repacked

from bfcviz.errors import FileError
from bfcviz.importers.open_trace import open_trace


def test_an_origin_of_many_values_is_refused(tmp_path):
    path = repacked(tmp_path / "t.parquet", alike(3), details={"x": [[]] * 2_000_000})
    with pytest.raises(FileError, match="values"):
        open_trace(path)


def test_numbers_without_end_are_refused(folder):
    text = (folder / "origin.json").read_text()
    (folder / "origin.json").write_text(text.replace('"details": {', '"details": {"x": 1e999'))
    with pytest.raises(FileError, match="JSON number"):
        open_trace(folder)
