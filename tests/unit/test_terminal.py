"""Names from files and other programs cannot control the terminal that they are printed on."""

import io
import json
import warnings

import pytest
from heaps import MIB, new_heap

import bfcviz
from bfcviz.cli import main
from bfcviz.events.label_table import Labels
from bfcviz.events.log import Reader
from bfcviz.events.origin import Origin, Pool
from bfcviz.events.trace import Trace
from bfcviz.terminal import aligned, json_text, named_rows, printable, say
from bfcviz.watching.watch_reports import OomReport, report

EVIL = "a\x1b[2J\x1b]0;owned\x07\r\nb\x7f\x9b31m\u202e\u2066\u2028"
SHOWN = r"a\x1b[2J\x1b]0;owned\x07\r\nb\x7f\x9b31m\u202e\u2066\u2028"


def assert_quiet(text):
    assert text.replace("\n", "").isprintable(), ascii(text)


@pytest.fixture
def evil_file(tmp_path):
    heap = new_heap(MIB, labels=Labels())
    heap.allocate(1000, label=EVIL)
    heap.mark(EVIL)
    pool = Pool(EVIL, MIB, {})
    events = Reader(heap.log, 0).read(1 << 10)
    origin = Origin(format="made", source=EVIL, reasons=(EVIL,), pools=(pool,))
    trace = Trace.from_events(events, heap.labels, origin)
    path = tmp_path / "evil\x1b[31m.parquet"
    trace.save(path)
    return path


def test_control_characters_are_printed_as_escapes():
    assert printable(EVIL) == SHOWN
    assert printable("\udcff\ud800") == r"\udcff\ud800"
    plain = "Größe 大 ∑ … \\ 'x' \u200d 👩"
    assert printable(plain) == plain


def test_an_ascii_stream_is_enough():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    say("Größe", "…", file=stream)
    assert stream.buffer.getvalue() == b"Gr\\xf6\\xdfe\n\\u2026\n"


def test_info_of_evil_names(evil_file, capsys):
    assert main(["info", str(evil_file)]) == 0
    out = capsys.readouterr().out
    assert_quiet(out)
    assert out.count(SHOWN) >= 2  # the source or its reason, and the pool


def test_json_is_exact_and_has_no_control_characters(evil_file, capsys):
    assert main(["info", "--json", str(evil_file)]) == 0
    out = capsys.readouterr().out
    assert_quiet(out)
    assert json.loads(out)["allocators"][0]["name"] == EVIL


def test_export_says_an_evil_path_harmlessly(evil_file, tmp_path, capsys):
    target = tmp_path / "out\x1b[31m\udcff.csv"
    assert main(["export", str(evil_file), "--figure", "fragmentation_timeline", "--out", str(target)]) == 0
    assert_quiet(capsys.readouterr().out)
    assert target.exists()


@pytest.mark.parametrize("command", ["info", "export", "record"])
def test_errors_say_evil_words_harmlessly(command, tmp_path, capsys):
    path = str(tmp_path / "gone\x1b[31m\udcff\n")
    words = {
        "export": ["export", path, "--figure", "region_map", "--out", "x.html"],
        "record": ["record", "-o", str(tmp_path / "run"), "--", path],
    }
    assert main(words.get(command, [command, path])) == 1
    err = capsys.readouterr().err
    assert_quiet(err)
    assert "\\x1b[31m\\udcff" in err


def test_a_usage_error_says_evil_words_harmlessly(capsys):
    with pytest.raises(SystemExit):
        main(["info", "--no\x1b[31m\udcff", "file"])
    assert_quiet(capsys.readouterr().err)


@pytest.mark.filterwarnings("default")
def test_warnings_say_evil_words_harmlessly(monkeypatch, capsys):
    monkeypatch.setattr("bfcviz.cli.info.run", lambda _: warnings.warn(EVIL, stacklevel=1))
    assert main(["info", "x"]) == 0
    err = capsys.readouterr().err
    assert_quiet(err)
    assert "warning: a\\x1b[2J" in err


def test_reports_and_failures_are_harmless_as_text(evil_file):
    text = str(report(bfcviz.open(evil_file), says=EVIL))
    assert_quiet(text)
    assert "owned" in text
    failure = OomReport(1, EVIL, EVIL, [EVIL], model=None, diagnosis=None)
    assert_quiet(str(failure))
    assert_quiet(failure.note)


def test_json_on_a_terminal_is_harmless_and_finite():
    text = json_text({"label": EVIL + "\x7f", "size": 1})
    assert_quiet(text)
    assert json.loads(text) == {"label": EVIL + "\x7f", "size": 1}
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text({"size": float("nan")})


def test_columns_are_aligned_at_either_side():
    assert aligned([("a", "1", "x"), ("bcd", "23", "")], [1]) == ["a     1  x", "bcd  23"]
    assert aligned([]) == []


def test_a_long_name_has_a_line_of_its_own():
    rows = [("name", "1"), ("n" * 20, "2")]
    assert named_rows(rows, [1], 80) == [["name  1"], ["n" * 20, "      2"]]
    assert named_rows(rows, [1], 6) == [["name", "  1"], ["n" * 20, "  2"]]
