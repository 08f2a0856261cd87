import ast
import asyncio
import os
import shutil
import tempfile
from contextlib import contextmanager
from io import BytesIO
from types import SimpleNamespace

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import write_connection_file
from processes import children_of, run_code
from shared import ROOT

import bfcviz
from bfcviz.cli import view
from bfcviz.cli.standby import KernelRequest, Standby
from bfcviz.errors import BfcvizError
from bfcviz.importers.open_trace import open_trace

VIEW = "bfcviz.cli.view"
NOTHING = KernelRequest("view", [], {}, None)


HOSTILE = [
    "x'); import os; os.abort() #.parquet",
    'two\nlines"""',
    "{{ 1 % 0 }}</script>",
    "\udcff\u202e",
    "\\",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_the_name_of_a_file_is_a_literal_and_never_code(name, tmp_path, monkeypatch):
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: SimpleNamespace(stdout=BytesIO()))
    monkeypatch.chdir(tmp_path)
    code = Standby(VIEW, name, ["dark", name]).code(prepares=True)
    assert code.isascii()
    assert len(ast.parse(code).body) == 4
    *_, called = ast.parse(code).body
    found = [ast.literal_eval(argument) for argument in called.value.args]
    assert found == [VIEW, str(tmp_path / name), ("dark", name)]


def test_it_says_what_is_wrong_with_the_file(tmp_path):
    standby = Standby(VIEW, str(tmp_path / "gone.parquet"))
    with pytest.raises(BfcvizError, match=r"gone\.parquet"):
        standby.check()
    standby.end()


def test_it_says_that_it_ended(tmp_path):
    (tmp_path / "ends.py").write_text("import os\ndef prepare(_): os._exit(3)\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        standby = Standby("ends", "any")
    with pytest.raises(BfcvizError, match="3"):
        standby.check()
    assert standby.become_kernel(NOTHING) is None


def test_it_goes_on_before_a_long_report_is_read(tmp_path):
    (tmp_path / "long.py").write_text("def prepare(_): return 'headline', 'x' * 1_000_000\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        standby = Standby("long", "any")
    standby._reader.join(150)  # nothing has called `check`
    assert len(standby._report) > 1_000_000
    standby.check()
    assert len(standby.first_screen) == 1_000_000
    standby.end()


def test_it_ends_with_its_server_and_is_no_kernel_then():
    before = children_of(os.getpid())
    standby = Standby(VIEW, str(bfcviz.sample("lstm")))
    standby.check()
    standby.check()  # the report is there once
    assert "<svg" in standby.first_screen
    assert len(children_of(os.getpid())) == len(before) + 1
    standby.end()
    assert children_of(os.getpid()) == before
    assert standby.become_kernel(NOTHING) is None


@pytest.mark.parametrize("end", ["", "os._exit(0)"])
def test_it_says_nothing_where_its_server_has_ended_before_the_file_was_read(end, tmp_path):
    (tmp_path / "slow.py").write_text("import sys\ndef prepare(_): sys.stdin.read()\n")
    code = f"import os; from bfcviz.cli.standby import Standby; standby = Standby('slow', 'any'); {end}"
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    # This also waits for the standby, which holds the same stderr.
    assert run_code(code, PYTHONPATH=paths) == ""


@contextmanager
def kernel_of(standby, folder, *, late=False):
    """A client of the kernel that the standby becomes, its process, and what it says of the widgets.

    `late`: it makes them before the page tells its width.
    """
    sockets = tempfile.mkdtemp(prefix="k")  # short names; a port could be taken by another test meanwhile
    file, _ = write_connection_file(f"{sockets}/connection.json", transport="ipc", ip=f"{sockets}/kernel")

    async def become():
        kernel = standby.become_kernel(KernelRequest("the view", ["-f", file], {**os.environ}, str(folder)))
        assert kernel is not None
        shown = standby.shown()
        if late:
            await asyncio.wait_for(shown, 150)
        standby.tell_width(870)
        standby.tell_width(1470)  # only the first counts
        return kernel, await asyncio.wait_for(shown, 150)

    kernel, error = asyncio.run(become())
    client = BlockingKernelClient(connection_file=file)
    client.load_connection_file()
    client.hb_channel.time_to_dead = 60.0  # on a loaded machine a kernel that starts misses beats
    client.start_channels()
    try:
        client.wait_for_ready(timeout=150)
        yield client, kernel, error
    finally:
        client.stop_channels()
        kernel.kill()
        kernel.wait()
        shutil.rmtree(sockets)


@pytest.mark.parametrize("late", [False, True])
def test_it_becomes_a_kernel_once_and_a_page_gets_all_widgets_in_one_answer(tmp_path, late):
    standby = Standby(VIEW, str(bfcviz.sample("lstm")), ["dark"])
    standby.check()
    with kernel_of(standby, tmp_path, late=late) as (client, kernel, error):
        assert error == ""
        assert standby.become_kernel(NOTHING) is None
        content = {"comm_id": "page", "target_name": "jupyter.widget.control", "data": {}}
        opened = client.session.msg("comm_open", content, metadata={"version": "1.0.0"})
        asked = client.session.msg("comm_msg", {"comm_id": "page", "data": {"method": "request_states"}})
        for message in (opened, asked):
            client.shell_channel.send(message)
        answer = client.get_iopub_msg(timeout=150)
        while (
            answer["parent_header"].get("msg_id") != asked["header"]["msg_id"]
            or "data" not in answer["content"]
        ):
            answer = client.get_iopub_msg(timeout=150)
        states = answer["content"]["data"]["states"]
        (shown,) = states["the view"]["state"]["children"]
        inspector = states[shown.removeprefix("IPY_MODEL_")]
        assert "bfcviz-dashboard" in inspector["state"]["_dom_classes"]
        # It is narrow at once.
        assert "fits?" in [each["state"].get("placeholder") for each in states.values()]
        (script,) = [each["state"] for each in states.values() if "digest" in each["state"]]
        assert "script" not in script  # the server sends it
        client.shutdown()
        assert kernel.wait(timeout=150) == 0


def test_another_one_says_why_it_cannot_make_the_widgets(tmp_path):
    (tmp_path / "shows.py").write_text("def dashboard(file): return 1 / 0\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        standby = Standby("shows", "any", prepares=False)
        another = standby.again()
    standby.end()
    another.check()  # it has nothing to report
    with kernel_of(another, tmp_path) as (_, _, error):
        assert error == "ZeroDivisionError: division by zero"


def test_a_file_that_changed_since_it_was_read_is_read_again(tmp_path):
    file = tmp_path / "a.pb.gz"
    shutil.copy(bfcviz.sample("lstm"), file)
    view.prepare(str(file))
    (prepared,) = [trace for _, trace in view._prepared.values()]
    assert view._trace_to_view(str(file)) is prepared
    view.prepare(str(file))
    shutil.copy(bfcviz.sample("conv"), file)
    assert view._trace_to_view(str(file)).path == file
    assert view._prepared == {}


def test_a_file_that_changed_while_it_was_read_is_read_again(tmp_path, monkeypatch):
    file = tmp_path / "a.pb.gz"
    shutil.copy(bfcviz.sample("lstm"), file)

    def read(path):
        trace = open_trace(path)
        shutil.copy(bfcviz.sample("conv"), path)
        return trace

    with monkeypatch.context() as patch:
        patch.setattr("bfcviz.importers.open_trace.open_trace", read)
        view.prepare(str(file))
    assert len(view._trace_to_view(str(file))) == len(bfcviz.open(bfcviz.sample("conv")))
