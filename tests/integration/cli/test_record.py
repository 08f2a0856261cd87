"""`bfcviz record` with real programs: they run unchanged, are recorded, and a summary is printed."""

import os
import resource
import signal
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest
from integration.cli.forked import LIMIT_S, forked
from processes import COMPILED, needs_compiled
from shared import ROOT

from bfcviz.analysis.diagnosis import Verdict
from bfcviz.analysis.failures import diagnosis_json
from bfcviz.cli.info import info, info_lines
from bfcviz.cli.record import prepare_folder
from bfcviz.errors import FileError
from bfcviz.events.origin import Status, ending_signal, memory_limits, process_peak
from bfcviz.events.schema import Kind
from bfcviz.events.storage.files import EARLIER
from bfcviz.events.storage.folder import recordings_in
from bfcviz.events.trace import Trace
from bfcviz.importers.open_trace import open_trace
from bfcviz.model import Model
from bfcviz.public_functions import why
from bfcviz.units import KiB, MiB, format_bytes

TRAIN = """
import sys
import numpy as np
kept = [np.empty(size, np.uint8) for size in (5000, 6000, 7000)]
print("trained", *sys.argv[1:])
print("careful", file=sys.stderr)
sys.exit(int(sys.stdin.read()))
"""


def recording(*words, folder, env=None, **options):
    """Run `bfcviz record -o FOLDER WORDS` to its end; `input` is 0 by default.

    In a fork of this process, which has imported what the command needs.
    """
    env = environment() | (env or {})
    return forked(["record", "-o", folder, *words], env=env, **{"input": "0"} | options)


def recording_process(*words, folder, **options):
    """`recording` as its user runs it: a process of its own."""
    command = [sys.executable, "-m", "bfcviz", "record", "-o", folder, *words]
    heard = {"capture_output": True, "text": True, "timeout": LIMIT_S}
    return subprocess.run(command, env=environment(), check=False, **heard, **options)


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT)} | ({} if COMPILED else {"BFCVIZ_UNCOMPILED": "1"})


def requests_in(folder):
    return requests_of_trace(Trace.open(folder))


def requests_of_trace(trace):
    events = trace.read(0, len(trace))
    return events["requested"][events["kind"] == Kind.ALLOCATE].tolist()


@pytest.fixture
def train(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


def test_a_script_runs_unchanged_and_is_recorded(train, tmp_path):
    folder = tmp_path / "run.bfc"
    words = ("--", sys.executable, train, "a", "--limit", "-o", "--", "b")
    done = recording_process(*words, folder=folder, input="7")
    assert (done.returncode, done.stdout) == (7, "trained a --limit -o -- b\n")
    said = done.stderr.splitlines()
    assert said[0] == "careful"
    assert said[1].startswith(f"bfcviz: {folder}: ")
    assert said[1].endswith(f"bfcviz view {folder}")
    assert "complete" in said[1]
    assert " events, served numpy (peak " in said[1]
    assert len(said) == 2
    trace = Trace.open(folder)
    assert trace.origin.status is Status.COMPLETE
    assert trace.origin.details["way"] == "serve"
    assert trace.origin.details["command"][1:3] == [str(train), "a"]
    assert {5000, 6000, 7000} <= {*requests_in(folder)}
    assert f"{len(trace):,} events" in said[1]
    peak = process_peak(trace.origin.details)
    assert 10 * MiB < peak < 1024 * MiB  # Python and NumPy themselves, too
    assert format_bytes(peak) in said[1]
    assert info(trace)["process_peak_bytes"] == peak
    assert format_bytes(peak) in "\n".join(info_lines(trace.origin, info(trace)))


@needs_compiled
def test_what_the_operating_system_refuses_is_not_blamed_on_the_limit(tmp_path):
    """The process may have 2 GiB of addresses, and the heap more."""
    path = tmp_path / "hog.py"
    path.write_text("import numpy as np\nkept = [np.ones(1 << 24, np.uint8) for _ in range(1000)]\n")

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, resource.RLIM_INFINITY))

    words = ("--limit", "8GiB", "--", sys.executable, path)
    done = recording_process(*words, folder=tmp_path / "run.bfc", preexec_fn=limited)
    assert done.returncode == 1
    trace = Trace.open(tmp_path / "run.bfc")
    assert memory_limits(trace.origin.details)["address_space"] == 2 << 30
    found = why(trace)
    assert found.verdict is Verdict.REFUSED
    kinds = {each.kind: each for each in found.advice}
    assert "larger_limit" not in kinds
    assert "ulimit -v" in kinds["system_memory"].text
    assert kinds["system_memory"].numbers["address_space"] == 2 << 30
    assert diagnosis_json(found)["verdict"] == "host_memory"


def test_secrets_of_the_command_are_masked_and_it_can_be_left_out(train, tmp_path):
    words = ["--", sys.executable, train, "a", "--api-key", "abc", "--token=xyz"]
    recording(*words, folder=tmp_path / "run.bfc", input="0")
    command = Trace.open(tmp_path / "run.bfc").origin.details["command"]
    assert command[2:] == ["a", "--api-key", "***", "--token=***"]
    recording("--no-command", *words, folder=tmp_path / "without.bfc", input="0")
    assert "command" not in Trace.open(tmp_path / "without.bfc").origin.details


STARTS = {
    "module": "'{python}' -m train",
    "console script": "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 '{bin}/pytest' -q -p no:cacheprovider test_it.py",
    "from a shell": "true; '{python}' train.py; exit $?",
    "from another Python": """'{python}' -c "import subprocess; subprocess.run(['{python}', 'train.py'])" """,
    "with other settings": "PYTHONDONTWRITEBYTECODE=1 exec '{python}' -W error -X dev -u train.py",
}


@pytest.mark.parametrize("how", list(STARTS))
def test_however_python_is_started(how, train, tmp_path):
    test = "import numpy as np\ndef test(): assert np.ones(5000, np.uint8).all()\n"
    (tmp_path / "test_it.py").write_text(test)
    line = STARTS[how].format(python=sys.executable, bin=Path(sys.executable).parent)
    folder = tmp_path / "run.bfc"
    done = recording("--", "sh", "-c", line, folder=folder, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert 5000 in requests_in(folder)
    assert "complete" in done.stderr


def test_a_python_without_bfcviz_is_recorded_too(train, tmp_path):
    venv.create(tmp_path / "venv", with_pip=False)
    only = tmp_path / "only"
    only.mkdir()
    for part in Path(np.__file__).parents[1].glob("numpy*"):
        (only / part.name).symlink_to(part)
    python, folder = tmp_path / "venv" / "bin" / "python", tmp_path / "run.bfc"
    path = {"PYTHONPATH": f"{ROOT / 'bfcviz' / 'live' / 'startup'}{os.pathsep}{only}"}
    code = "import sys, numpy; numpy.empty(5000, numpy.uint8); del sys.modules['bfcviz']; import bfcviz"
    words = ["env", *(f"{name}={value}" for name, value in path.items()), python, "-c", code]
    done = recording("--", *words, folder=folder, cwd=tmp_path)
    assert "No module named 'bfcviz'" in done.stderr
    assert 5000 in requests_in(folder)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["true"], "no Python process started"),
        ([sys.executable, "-I", "-c", "import numpy"], "no Python process started"),
        (
            [sys.executable, "-c", "import sys; assert 'numpy' not in sys.modules"],
            "no Python process imported numpy",
        ),
        ([sys.executable, "-c", "raise SystemExit"], "no Python process imported numpy"),
    ],
)
def test_the_summary_says_why_nothing_was_recorded(words, says, tmp_path):
    done = recording("--", *words, folder=tmp_path / "run.bfc")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith(f"bfcviz: nothing was recorded: {says}")
    assert not (tmp_path / "run.bfc").exists()


def test_a_program_that_cannot_be_recorded_runs_unchanged(train, tmp_path):
    done = recording("--limit", "0", "--", sys.executable, train, folder=tmp_path / "run.bfc", input="3")
    assert (done.returncode, done.stdout) == (3, "trained\n")
    assert "nothing was recorded: " in done.stderr
    for fact in ("InvalidRequest", "limit is 0 bytes"):
        assert fact in done.stderr


def test_a_framework_without_a_gpu_runs_unchanged(tmp_path):
    (tmp_path / "torch.py").write_text(
        "from types import SimpleNamespace\n__version__ = '2.9.0'\n"
        "cuda = SimpleNamespace(is_available=lambda: False)\n"
    )
    (tmp_path / "train.py").write_text("import torch; print(torch.__version__)")
    done = recording("--torch", "--", sys.executable, tmp_path / "train.py", folder=tmp_path / "run.bfc")
    assert (done.returncode, done.stdout) == (0, "2.9.0\n")
    for fact in ("LiveError: PyTorch 2.9.0 ", "no CUDA device"):
        assert fact in done.stderr
    assert not (tmp_path / "run.bfc").exists()


def test_tensorflows_windows_are_counted(tmp_path):
    (tmp_path / "tensorflow.py").write_text("""
from pathlib import Path
from types import SimpleNamespace
class Profiler:
    def ProfilerOptions(self, **options): return options
    def start(self, folder, options): self.folder = Path(folder)
    def stop(self): self.folder.mkdir(); self.folder.joinpath("a.xplane.pb").touch()
profiler = SimpleNamespace(experimental=Profiler())
""")
    (tmp_path / "train.py").write_text("import tensorflow; print('trained')")
    folder = tmp_path / "run.bfc"
    done = recording("--tensorflow", "--", sys.executable, tmp_path / "train.py", folder=folder)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    look = folder / "window-000001" / "a.xplane.pb"
    assert done.stderr.startswith(f"bfcviz: {folder}: 1 window of TensorFlow ")
    assert f"{look}: the file is empty" in done.stderr
    assert [path.name for path in folder.iterdir()] == ["window-000001"]


TRAIN_TENSORFLOW = """
import tensorflow as tf
weights = tf.Variable(tf.ones((300, 100)))
kept = []
for step in range(30):
    kept.append(tf.matmul(tf.ones((100, 300)), weights))
"""


def test_tensorflow_is_recorded_from_its_import_to_the_end_of_the_program(tmp_path):
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    (tmp_path / "train.py").write_text(TRAIN_TENSORFLOW)
    folder = tmp_path / "run.bfc"
    env = {"TF_CPU_ALLOCATOR_USE_BFC": "true", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = recording("--tensorflow", "--", sys.executable, "train.py", folder=folder, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].endswith(f"bfcviz view {folder}")
    trace = open_trace(folder)
    assert trace.origin.status is Status.COMPLETE
    (check,) = trace.origin.details["checks"]
    assert (check["method"], check["differing"]) == ("replayed", 0)
    products = [size for size in requests_of_trace(trace) if size == 100 * 100 * 4]
    assert len(products) == 30


def test_stacks_are_recorded_with_the_option(train, tmp_path):
    done = recording("--capture", "stack", "--", sys.executable, train, folder=tmp_path / "run.bfc")
    assert done.returncode == 0, done.stderr
    trace = Trace.open(tmp_path / "run.bfc")
    stacks = [trace.labels[number].details.get("stack", "") for number in range(len(trace.labels))]
    assert any(f"({train}:4)" in stack for stack in stacks)


LONG = """
import os, signal
import numpy as np
held = [None] * 40
for number in range(100_000):
    held[number % 40] = np.empty(5000 + number * 7919 % 200_000, np.uint8)
if KILLED:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not COMPILED, reason="too slow")
@pytest.mark.parametrize("killed", [False, True])
def test_only_the_newest_events_are_kept(killed, tmp_path):
    words = ["--keep", "64KiB", "--", sys.executable, "-c", LONG.replace("KILLED", str(killed))]
    done = recording(*words, folder=tmp_path / "run")
    assert done.returncode == (128 + signal.SIGKILL if killed else 0)
    trace = Trace.open(tmp_path / "run")
    assert 0 < trace.first < len(trace)
    assert trace.origin.status is Status.TRUNCATED
    assert trace.origin.has_ended_whole is not killed
    model = Model(trace)
    model.seek(len(trace))
    stats = model.stats()
    assert stats.num_allocs >= 100_000
    assert stats.chunks_in_use >= 39
    shown = "\n".join(info_lines(trace.origin, info(trace)))
    assert f"{trace.first:,}" in shown


@pytest.mark.parametrize("words", [["--keep", "0"], ["--keep", "1MiB", "--tensorflow"]])
def test_a_size_that_cannot_be_kept_is_refused(words, tmp_path):
    done = recording(*words, "--", sys.executable, "-c", "print('ran')", folder=tmp_path / "run")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_numpy_that_fails_to_import_fails_as_before(tmp_path):
    (tmp_path / "numpy.py").write_text("raise ImportError('broken')")
    (tmp_path / "try.py").write_text("try: import numpy\nexcept ImportError as error: print(error)")
    done = recording("--", sys.executable, tmp_path / "try.py", folder=tmp_path / "run.bfc")
    assert (done.returncode, done.stdout) == (0, "broken\n")


def test_options_reach_the_heap(tmp_path):
    code = """
import numpy as np
np.empty(999, np.uint8), np.empty(5000, np.uint8)
try: np.empty(1 << 21, np.uint8)
except MemoryError: print("full")
"""
    words = ["--limit", "1MiB", "--small=1KiB", "--", sys.executable, "-c", code]
    done = recording(*words, folder=tmp_path / "run.bfc")
    assert done.stdout == "full\n"
    assert " of 1.0 MiB; 1 request failed)" in done.stderr
    trace = Trace.open(tmp_path / "run.bfc")
    assert trace.origin.pools[0].limit == MiB
    assert 5000 in requests_in(tmp_path / "run.bfc")
    assert min(requests_in(tmp_path / "run.bfc")) >= KiB


def test_a_process_that_starts_after_the_end_is_not_recorded(tmp_path):
    (tmp_path / "late.py").write_text(
        "import sys; sys.stdin.read(); import numpy; print(numpy.ones(3).sum())"
    )
    (tmp_path / "start.py").write_text(
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import sys, os; sys.stdin.read(); os.execv(sys.executable,"
        ' [sys.executable, "late.py"])\'], stdin=int(sys.argv[1]), stdout=int(sys.argv[2]), stderr=-3)\n'
    )
    (there, go_on), (said, here) = os.pipe(), os.pipe()
    for end in (there, here):
        os.set_inheritable(end, True)
    done = recording(
        "--", sys.executable, "start.py", str(there), str(here), folder=tmp_path / "run.bfc", cwd=tmp_path
    )
    assert "no Python process imported numpy" in done.stderr
    for end in (there, here, go_on):
        os.close(end)
    with os.fdopen(said) as file:
        assert file.read() == "3.0\n"
    assert not (tmp_path / "run.bfc").exists()


def test_the_users_sitecustomize_runs_too(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins; builtins.MINE = __file__")
    code = "import sys, sitecustomize, numpy; print(MINE == sitecustomize.__file__, *sys.path, sep='\\n')"
    path = {"PYTHONPATH": f"{ROOT}{os.pathsep}{own}"}
    done = recording("--", sys.executable, "-c", code, folder=tmp_path / "run.bfc", env=path)
    said = done.stdout.splitlines()
    assert said[:4] == ["True", "", str(ROOT), str(own)]
    assert not any("startup" in place for place in said)


def test_the_import_hook_leaves_no_trace(tmp_path):
    code = """
import sys, importlib.util, numpy
print(type(importlib.util.find_spec("numpy").loader).__module__, type(numpy.__loader__).__module__)
print([finder for finder in sys.meta_path if "sitecustomize" in type(finder).__module__])
"""
    done = recording("--", sys.executable, "-c", code, folder=tmp_path / "run.bfc")
    assert done.stdout == "_frozen_importlib_external _frozen_importlib_external\n[]\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_every_worker_of_multiprocessing_is_recorded(method, tmp_path):
    (tmp_path / "work.py").write_text(f"""
import multiprocessing as mp, sys, warnings
import numpy as np
warnings.simplefilter("ignore")
def work(n): np.full(n, 2, np.uint8)
if __name__ == "__main__":
    workers = [mp.get_context({method!r}).Process(target=work, args=(4000 + i,)) for i in (1, 2)]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
    np.empty(1234, np.uint8)
    sys.exit(sum(worker.exitcode for worker in workers))
""")
    folder = tmp_path / "run.bfc"
    done = recording("--", sys.executable, "work.py", folder=folder, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    found = recordings_in(folder)
    names = [each.lower() for each in found]
    assert names == ["main", f"{method}process-1", f"{method}process-2"]
    main, *workers = (requests_in(path) for path in found.values())
    assert 1234 in main
    for number, requests in enumerate(workers, 1):
        assert {4001, 4002} & {*requests} == {4000 + number}
    assert {Trace.open(path).origin.status for path in found.values()} == {Status.COMPLETE}
    assert all(f"{name} " in done.stderr for name in found)
    assert f"bfcviz attach {folder}" in done.stderr
    assert "not recorded" not in done.stderr
    earlier = prepare_folder(folder, force=True)
    assert [path.name for path in folder.iterdir()] == [EARLIER]
    earlier.settle()
    assert recordings_in(folder) == found


def test_ranks_are_recorded_and_their_launcher_is_not(tmp_path):
    """A stand-in for torchrun: it imports the framework, and starts two ranks with its variables."""
    (tmp_path / "torchrun").write_text(
        "import os, subprocess, sys, numpy\nfor rank in '01':\n    variables = {'RANK': rank, 'LOCAL_RANK': rank}\n"
        "    subprocess.run([sys.executable, 'train.py'], env=os.environ | variables, check=True)\n"
    )
    (tmp_path / "train.py").write_text(
        "import os, numpy as np\nnp.empty(4000 + int(os.environ['RANK']), np.uint8)\n"
    )
    folder = tmp_path / "run.bfc"
    done = recording("--", sys.executable, "torchrun", folder=folder, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 processes (rank-0" in done.stderr
    found = recordings_in(folder)
    assert [*found] == ["rank-0", "rank-1"]
    assert [4000 + rank in requests_in(path) for rank, path in enumerate(found.values())] == [True, True]
    assert "not recorded" not in done.stderr
    with pytest.raises(FileError, match="rank-0"):
        Trace.open(folder)


@pytest.mark.skipif(not COMPILED, reason="the handler is in C")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_that_a_pool_terminates_have_lost_nothing(method, tmp_path):
    (tmp_path / "pool.py").write_text(f"""
import multiprocessing as mp
import numpy as np
def work(n): return len(np.empty(n, np.uint8))
if __name__ == "__main__":
    with mp.get_context({method!r}).Pool(1) as pool: print(pool.map(work, [4001, 4002]))
""")
    done = recording("--", sys.executable, tmp_path / "pool.py", folder=tmp_path / "run")
    assert (done.returncode, done.stdout) == (0, "[4001, 4002]\n")
    (path,) = [path for name, path in recordings_in(tmp_path / "run").items() if name != "main"]
    assert {4001, 4002} <= set(requests_in(path))
    origin = Trace.open(path).origin
    assert (origin.status, ending_signal(origin.details)) == (Status.COMPLETE, signal.SIGTERM)
    assert origin.details["framework"] == "numpy"
    assert "did not end cleanly" not in done.stderr


SIGNALLED = """
import os, signal, time
import numpy as np
np.empty(1234, np.uint8)
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
def ended(by_parent):
    if (child := os.fork()) == 0:
        time.sleep(60)
    os.kill(child, by_parent)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert ended(signal.SIGTERM) == -signal.SIGTERM
if HANDLED: signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
time.sleep(0.5)  # for a sample of the process
os.kill(os.getpid(), NUMBER)
time.sleep(60)
"""


@pytest.mark.skipif(not COMPILED, reason="the handler is in C")
@pytest.mark.parametrize(
    ("number", "handled", "status", "whole"),
    [
        (signal.SIGTERM, False, 128 + signal.SIGTERM, True),
        (signal.SIGTERM, True, 5, False),
        (signal.SIGKILL, False, 128 + signal.SIGKILL, False),
    ],
)
def test_the_signal_that_ended_the_program_is_known(number, handled, status, whole, tmp_path):
    code = SIGNALLED.replace("HANDLED", str(handled)).replace("NUMBER", str(int(number)))
    done = recording("--", sys.executable, "-c", code, folder=tmp_path / "run")
    assert done.returncode == status, done.stderr
    trace = Trace.open(tmp_path / "run")
    assert 1234 in requests_of_trace(trace)
    assert trace.origin.has_ended_whole is whole
    assert ending_signal(trace.origin.details) == (None if handled else number)
    shown = "\n".join(info_lines(trace.origin, info(trace)))
    assert "process at its peak" in shown
    assert (number.name in shown, number.name in done.stderr) == (not handled, not handled)


def test_a_process_forked_without_multiprocessing_is_counted(tmp_path):
    code = "import os, numpy as np; child = os.fork(); child or os._exit(0); os.waitpid(child, 0); np.empty(1234)"
    done = recording("--", sys.executable, "-c", code, folder=tmp_path / "run.bfc")
    assert ", 1 other process not recorded" in done.stderr


def test_the_summary_says_that_numpy_was_imported_in_a_thread(tmp_path):
    """NumPy's handler belongs to a context: serving one thread does not serve the main thread."""
    code = """
import threading
def work():
    import numpy as np
    np.empty(1234, np.uint8)
thread = threading.Thread(target=work)
thread.start()
thread.join()
import numpy as np
np.empty(4321, np.uint8)
"""
    done = recording("--", sys.executable, "-c", code, folder=tmp_path / "run.bfc")
    assert 1234 in requests_in(tmp_path / "run.bfc")
    assert 4321 not in requests_in(tmp_path / "run.bfc")
    assert ", without " in done.stderr
    assert "first imported NumPy" in done.stderr


def test_a_process_that_exits_at_once_leaves_its_events(tmp_path):
    code = "import os, numpy as np; np.empty(1234, np.uint8); os._exit(5)"
    folder = tmp_path / "run.bfc"
    done = recording("--", sys.executable, "-c", code, folder=folder)
    assert done.returncode == 5
    assert "recording did not end cleanly" in done.stderr
    assert 1234 in requests_in(folder)
    assert Trace.open(folder).origin.status is Status.TRUNCATED
