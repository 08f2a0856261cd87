"""`bfcviz why` as a process: its memory with a long text, and its score on texts that people pasted."""

import subprocess
import sys
from pathlib import Path

from shared import SHARED, needs_shared
from unit.cli.test_why import MESSAGE


def test_a_message_needs_no_plotly_and_little_memory(tmp_path):
    """A text of one line of 60 MB: read in pieces."""
    path = tmp_path / "long.txt"
    path.write_bytes(b"x " * (30 << 20) + MESSAGE.encode() + b" y" * 1000)
    code = (
        "import sys; from bfcviz.cli import main; assert main(['why', sys.argv[1]]) == 0;"
        "assert not {'plotly', 'ipywidgets', 'pandas'} & set(sys.modules);"
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) < 200_000  # KiB


@needs_shared
def test_the_texts_that_people_pasted():
    """The score of the given script: all facts, nearly all verdicts, no advice that cannot work."""
    script = SHARED / "real/messages/check.py"
    runner = Path(sys.executable).with_name("bfcviz")
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=True,
        env={"BFCVIZ": str(runner), "PATH": ""},
    )
    score = done.stdout.splitlines()[-1]
    assert (
        "is_failure right 26, facts 105 of 105, advice given 54 of 54, forbidden advice 0, verdict score 26/26"
        in score
    )
