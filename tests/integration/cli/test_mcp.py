"""`bfcviz mcp`, asked by the client of the protocol's SDK over standard input and output."""

import asyncio
import base64
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from integration.browser.lab import find_browser
from shared import ROOT, sample_trace

import bfcviz
from bfcviz.analysis.failures import diagnose
from bfcviz.cli import main
from bfcviz.cli import mcp as command
from bfcviz.errors import MissingExtra
from bfcviz.events.log import EVENTS_FILE
from bfcviz.exporters.convert import convert
from bfcviz.model.find_steps import failed_steps

pytestmark = pytest.mark.skipif(
    find_spec("mcp") is None, reason="the SDK of the protocol is not installed: pip install 'bfcviz[mcp]'"
)


def answers(folder, *calls):
    """What a server of this folder answers: its tools, then the result of each call (name, arguments)."""
    from mcp import Client  # noqa: PLC0415  takes seconds, which every process of the tests would spend
    from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: PLC0415

    async def ask():
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "bfcviz", "mcp", str(folder)], cwd=ROOT
        )
        async with Client(stdio_client(server)) as client:
            tools = (await client.list_tools()).tools
            return tools, [await client.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(ask())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with samples, a recording, and links that lead out of it."""
    place = tmp_path_factory.mktemp("mcp")
    inside = place / "inside"
    inside.mkdir()
    for name in ("lstm", "conv", "oom_log"):
        shutil.copy(bfcviz.sample(name), inside)
    sample_trace("lstm").save(place / "secret.parquet")
    for name in ("run", "linked"):
        with bfcviz.Recording(inside / name) as recording:
            heap = bfcviz.BFCAllocator(
                bfcviz.SimulatedSubAllocator(), "64MiB", log=recording.log, labels=recording.labels
            )
            heap.allocate("20MiB", label="weights")
    (inside / "linked" / EVENTS_FILE).unlink()
    (inside / "linked" / EVENTS_FILE).symlink_to(place / "secret.parquet")
    (inside / "out").symlink_to(place)
    (inside / "out.parquet").symlink_to(place / "secret.parquet")
    (inside / "same.gz").symlink_to(inside / "oom.log.gz")
    return inside


LSTM = {"path": "lstm.xplane.pb.gz"}
ASKED = {
    "open": {},
    "why": {"path": "same.gz"},
    "holders": LSTM | {"by": "thread"},
    "leaks": LSTM,
    "compare": {"before": "lstm.xplane.pb.gz", "after": "conv.xplane.pb.gz"},
    "whatif": LSTM | {"policies": ["torch"], "limit": "1MiB"},
    "tune": LSTM,
}
REFUSED = [
    ("open", {"path": ".."}),
    ("open", {"path": "../secret.parquet"}),
    ("open", {"path": "/etc/passwd"}),
    ("open", {"path": "out"}),
    ("why", {"path": "out.parquet"}),
    ("holders", {"path": "out/secret.parquet"}),
    ("leaks", {"path": "linked"}),
    ("compare", {"before": "lstm.xplane.pb.gz", "after": "out.parquet"}),
    ("picture", {"path": "no\0thing"}),
    ("holders", LSTM | {"step": "tomorrow"}),
    ("whatif", LSTM | {"policies": ["torch"] * 9}),
    ("tune", LSTM | {"device": "large"}),
]


RECORDING = ("open", {"path": "run"})
PICTURE = ("picture", LSTM | {"figure": "bin_histogram", "step": 1000})


@pytest.fixture(scope="module")
def told(folder):
    """The tools, and the answers to `ASKED`, `REFUSED`, `RECORDING` and, with a browser, `PICTURE`, of one server."""
    pictures = [PICTURE] if find_browser() else []
    tools, results = answers(folder, *ASKED.items(), *REFUSED, RECORDING, *pictures)
    return tools, dict(zip(ASKED, results, strict=False)), results[len(ASKED) :]


def test_it_has_the_tools_and_they_only_read(told):
    tools, _, _ = told
    assert [tool.name for tool in tools] == list(command.TOOLS)
    assert all(tool.annotations.read_only_hint for tool in tools)
    assert all(tool.description and tool.input_schema["properties"] for tool in tools)


def test_each_tool_answers_as_the_function_of_its_name(told):
    texts = {}
    for name, result in told[1].items():
        assert not result.is_error
        texts[name] = result.content[0].text
    lstm, failed = sample_trace("lstm"), sample_trace("oom_log")
    assert texts["why"] == str(diagnose(failed, failed_steps(failed)[0] - 1))
    assert texts["holders"] == str(bfcviz.holders(lstm, "peak", by="thread"))
    assert texts["leaks"] == str(bfcviz.leaks(lstm))
    assert texts["compare"] == str(bfcviz.compare_recordings(lstm, sample_trace("conv")))
    assert "does not fit" in texts["whatif"] or "fails" in texts["whatif"]
    assert "settings tried" in texts["tune"]


def test_a_folder_is_a_list_of_its_files_and_recordings(told):
    lines = told[1]["open"].content[0].text.splitlines()[1:]
    files = {"lstm.xplane.pb.gz", "conv.xplane.pb.gz", "oom.log.gz", "out.parquet", "same.gz"}
    assert {line.split()[-1] for line in lines} == files | {"run", "linked"}


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=lambda number: f"{REFUSED[number][0]}-{number}")
def test_what_leads_out_or_is_no_question_is_refused(number, told):
    result = told[2][number]
    assert result.is_error
    assert "secret" not in result.content[0].text or "secret" in str(REFUSED[number][1])
    said = "leads out" if number < 8 else "is not there" if number == 8 else "give"
    assert said in result.content[0].text


def test_a_recording_is_opened(told):
    result = told[2][len(REFUSED)]
    assert "20.0 MiB in 1 chunk" in result.content[0].text


def test_a_long_answer_is_cut_and_says_so(folder):
    tools = command.Tools(folder)
    for number in range(300):
        (folder / "many" / f"{number:03}-{'x' * 200}").mkdir(parents=True)
        (folder / "many" / f"{number:03}-{'x' * 200}" / "log.txt").write_text("")
    text = tools.open("many")
    assert len(text.splitlines()) == 202
    cut = command.bounded(text)
    assert len(cut) < 20_100
    assert (
        cut.splitlines()[-1]
        == f"... {len(text) - len(cut.rpartition(chr(10))[0]):,} more characters are left out"
    )
    assert "\x1b" not in command.bounded("a\x1b[2J")


@pytest.mark.skipif(find_browser() is None, reason="no Chromium or Chrome found")
def test_a_picture_is_a_png_of_the_step(told):
    result = told[2][len(REFUSED) + 1]
    (image,) = result.content
    assert image.mime_type == "image/png"
    assert base64.b64decode(image.data).startswith(b"\x89PNG")


def recorded(folder, size):
    """A recording of a heap with two chunks, of which one is freed."""
    with bfcviz.Recording(folder) as recording:
        heap = bfcviz.BFCAllocator(
            bfcviz.SimulatedSubAllocator(), "64MiB", log=recording.log, labels=recording.labels
        )
        heap.allocate(size, label="weights")
        heap.free(heap.allocate("1MiB", label="activations"))


def test_of_a_folder_with_several_recordings_the_others_are_named(tmp_path):
    job = tmp_path / "job"
    for place, size in ((job, "20MiB"), (job / "rank-1", "30MiB"), (tmp_path / "alone", "20MiB")):
        recorded(place, size)
    tools, worker = command.Tools(tmp_path), str(Path("job", "rank-1"))
    asked = {
        "open": tools.open,
        "holders": tools.holders,
        "leaks": tools.leaks,
        "whatif": lambda path: tools.whatif(path, ["torch"]),
        "tune": tools.tune,
        "compare": lambda path: tools.compare("alone", path),
    }
    for name, ask in asked.items():
        found = ask("job").splitlines()
        assert worker in found[0], name
        assert worker not in ask(worker).splitlines()[0], name
    assert "rank 1 of" in tools.why("job")
    assert {line.split()[-1] for line in tools.open().splitlines()[1:]} == {"job", worker, "alone"}
    assert tools.holders("job").splitlines()[1:] == tools.holders("alone").splitlines()
    assert "30.0 MiB" in tools.holders(worker)


def test_what_is_missing_of_a_file_is_said_once(tmp_path):
    whole = sample_trace("conv")
    convert(whole, tmp_path / "part.parquet", 0, len(whole) // 2)
    tools = command.Tools(tmp_path)
    (missing,) = bfcviz.open(tmp_path / "part.parquet").origin.reasons
    for ask in (tools.holders, tools.leaks, tools.tune, lambda path: tools.whatif(path, ["torch"])):
        assert " ".join(ask("part.parquet").split()).count(missing) == 1


def test_a_search_ends_in_time_and_says_so(folder, monkeypatch):
    monkeypatch.setattr(command, "_SEARCH_S", 0.0)
    text = command.Tools(folder).tune("conv.xplane.pb.gz")
    assert "the search was stopped" in text


def test_what_is_missing_is_named(folder, capsys, monkeypatch):
    assert main(["mcp", str(folder / "oom.log.gz")]) == 1
    assert "is not a folder" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with pytest.raises(MissingExtra, match=r"pip install 'bfcviz\[mcp\]'"):
        command.server_of(folder)
