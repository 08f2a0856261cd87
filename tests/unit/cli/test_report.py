"""`bfcviz report`: its formats, what it prints, and its errors."""

import contextlib
import json
import re

import pytest
from shared import SHARED, needs_shared
from unit.figures.synthetic import busy_trace

import bfcviz
from bfcviz.cli import main
from bfcviz.events.origin import REGION_FACTS, KnownGaps
from bfcviz.live.observed_heap import ObservedHeap


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return busy_trace(300).save(tmp_path_factory.mktemp("report") / "busy.parquet")


def test_the_page_is_written_and_needs_nothing(file, tmp_path, capsys):
    out = tmp_path / "report.html"
    assert main(["report", str(file), "-o", str(out)]) == 0
    page = out.read_text()
    assert page.startswith("<!doctype html>")
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert capsys.readouterr().out == f"{out}: {out.stat().st_size / 1000:,.0f} kB\n"


def test_charts_show_no_free_memory_where_it_is_not_known(file, tmp_path, capsys):
    with bfcviz.Recording(tmp_path / "run") as recording:
        recording.declare(KnownGaps(("a sample",), REGION_FACTS))
        heap = ObservedHeap(recording)
        for number in range(4):
            heap.allocate(4096 * number, 1024)
        running = ["info", str(tmp_path / "run"), "--json"]
        assert main(running) == 0
        reasons = json.loads(capsys.readouterr().out)["reasons"]
        assert reasons == ["a sample", "still being recorded"]
    for path, expected in ((file, ["Stats", "Fragmentation"]), (tmp_path / "run", ["Active memory"])):
        out = tmp_path / f"{len(expected)}.html"
        assert main(["report", str(path), "-o", str(out)]) == 0
        light = out.read_text().partition("<h2>Over time")[2].split('<div class="bfcviz-light">')[1:]
        assert [re.search(r'aria-label="([\w ]+) \(', each)[1].strip() for each in light] == expected


def test_markdown_and_json_are_printed(file, capsys):
    assert main(["report", str(file), "--format", "md"]) == 0
    assert capsys.readouterr().out.startswith("# ")
    assert main(["report", str(file), "--format", "json", "--range", "10:100"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == [10, 100]


def test_the_suffix_chooses_the_format(file, tmp_path, capsys):
    assert main(["report", str(file), "-o", str(tmp_path / "r.md")]) == 0
    assert (tmp_path / "r.md").read_text().startswith("# ")
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "a page needs a file: give -o report.html, or --format md"),
        (("-o", "r.txt"), "its name must end in .html"),
        (("-o", "r.md", "--format", "html"), "its name must end in .html"),
        (("-o", "r.md", "--interactive"), "--interactive makes a page, and --format md is none"),
        (("-o", "r.html", "--pool", "none"), "the file has no allocator 'none'; it has 0: pool 0"),
    ],
)
def test_errors_say_what_to_do(words, message, file, tmp_path, capsys):
    with contextlib.chdir(tmp_path):
        assert main(["report", str(file), *words]) == 1
    assert message in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_an_interrupt_leaves_no_file(file, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("bfcviz.exporters.report_page._holders_html", interrupted)
    assert main(["report", str(file), "-o", str(tmp_path / "r.html")]) == 130
    assert not any(tmp_path.iterdir())


@needs_shared
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "logs/tf2.14_2023-10_cifar10.log",
            "585.9 MiB asked for, 2.7 GiB free, largest free chunk 532.9 MiB",
        ),
        (
            "tensorflow/oom_transformer.log",
            "828.1 KiB asked for, 899.5 KiB free, largest free chunk 742.2 KiB",
        ),
        ("snapshots/torch_octree_nca_67k.pickle", "No request failed"),
        ("other/vma_sample.json", "The file does not say whether a request failed"),
    ],
)
def test_real_files_are_reported(name, said, tmp_path, capsys):
    out = tmp_path / "report.html"
    assert main(["report", str(SHARED / "real" / name), "-o", str(out)]) == 0
    assert said in out.read_text()
    assert out.stat().st_size < 500_000
    capsys.readouterr()


@needs_shared
@pytest.mark.parametrize("form", ["md", "json", "html"])
def test_a_file_with_a_message_and_no_heap_is_told_as_why_tells_it(form, tmp_path, capsys):
    out = tmp_path / f"report.{form}"
    assert main(["report", str(SHARED / "real" / "logs" / "jax_2024-05_16_001.log"), "-o", str(out)]) == 0
    text = out.read_text()
    assert "11.99 GiB" in text or json.loads(text)["failures"]
    assert "22.89 GiB" in text or form == "json"
    capsys.readouterr()
