"""What every Python that `bfcviz record` starts runs first."""

import json

from unit.live.record_orders import order

from bfcviz.live.startup import sitecustomize


def test_a_python_that_is_too_old_is_said(monkeypatch, tmp_path):
    asked = order(tmp_path, framework=None, home="")
    with monkeypatch.context() as patched:
        patched.setattr("sys.version_info", (3, 10, 2, "final", 0))
        sitecustomize.begin(asked, "numpy")
    (file,) = (tmp_path / "told").iterdir()
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert [word["fact"] for word in told] == ["imported", "unable"]
    assert told[1]["why"] == "ImportError: bfcviz needs Python 3.11 or later, this is 3.10"
