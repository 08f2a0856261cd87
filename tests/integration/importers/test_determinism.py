"""The same file gives the same events, labels, origin and answers, whatever the order of Python's sets is."""

import pytest
from processes import run_code
from shared import needs_shared

PRINT_DIGESTS = """
import hashlib, json, sys, tempfile
from pathlib import Path
from integration.attacks.seeds import FORMATS, LONG, made_files, real_files
import bfcviz
from bfcviz.cli.info import info
from bfcviz.analysis.failures import diagnosis_json
from bfcviz.analysis.failures import all_failures

files = {files}
path = Path(tempfile.mkdtemp()) / "input"
for format_ in FORMATS:
    for data in files(format_):
        path.write_bytes(data)
        traces = [bfcviz.open(path) for _ in range({times})]
        digests = []
        for trace in traces:
            answers = [info(trace), [diagnosis_json(each) for each in all_failures(trace)]]
            labels = [(label.name, sorted(label.details.items())) for label in trace.labels]
            words = [repr(trace.origin), repr(labels), json.dumps(answers)]
            whole = trace.read(0, len(trace)).tobytes() + "".join(words).encode()
            digests.append(hashlib.sha256(whole).hexdigest())
        assert len({*digests}) == 1, format_
        print(format_, digests[0])
path.unlink()
path.parent.rmdir()
"""


def check(files):
    first, second = (
        run_code(PRINT_DIGESTS.replace("{files}", files).replace("{times}", times), PYTHONHASHSEED=seed)
        for seed, times in (("1", "2"), ("77", "1"))
    )
    assert first == second
    assert len(first.splitlines()) > 5


def test_made_files():
    check("made_files")


@needs_shared
@pytest.mark.timeout(200)
def test_real_files():
    check("lambda format_: [data for data in real_files(format_) if len(data) < LONG]")
