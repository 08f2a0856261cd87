import shutil
import sys
import tempfile
import traceback
import zipfile
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest
from unit.whatif.sweep_streams import record

import bfcviz
from bfcviz.cli import main
from bfcviz.errors import FileError, InvalidRequest, MissingExtra
from bfcviz.importers import remote_file
from bfcviz.importers.remote_file import is_url, local_copy
from bfcviz.whatif.requests import requests_of, stream_of

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def url():
    """A folder in memory, as a URL, with a trace as a file and one as a recording."""
    files, folder = fsspec.filesystem("memory"), f"/{uuid4()}"
    files.makedirs(folder)
    yield f"memory:/{folder}"
    files.rm(folder, recursive=True)


def test_a_file_at_a_url_is_read(url, tmp_path):
    path = tmp_path / "run.parquet"
    bfcviz.open(record(tmp_path / "run")).save(path)
    fsspec.filesystem("memory").put_file(str(path), f"{url}/run.parquet")
    found, expected = stream_of(f"{url}/run.parquet"), requests_of(bfcviz.open(path))
    assert (found.rows == expected.rows).all()
    assert found.source == expected.source


def test_a_recording_at_a_url_is_read(url, tmp_path):
    record(tmp_path / "run")
    fsspec.filesystem("memory").put(f"{tmp_path}/run", f"{url}/run", recursive=True)
    found, expected = stream_of(f"{url}/run"), stream_of(str(tmp_path / "run"))
    assert (found.rows == expected.rows).all()
    assert found.allocations == 2


def test_a_trace_at_a_url_is_opened_and_its_copy_goes_with_it(url, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
    (tmp_path / "copies").mkdir()
    trace = bfcviz.open(record(tmp_path / "run"))
    fsspec.filesystem("memory").put_file(str(trace.save(tmp_path / "run.bfc")), f"{url}/run.bfc")
    remote = bfcviz.open(f"{url}/run.bfc")
    assert remote.read(0, len(remote)).tobytes() == trace.read(0, len(trace)).tobytes()
    del remote
    assert list((tmp_path / "copies").iterdir()) == []


@pytest.mark.parametrize("source", ["", "/*"])
def test_the_ranks_of_a_job_at_a_url(url, source, tmp_path):
    job = tmp_path / "job"
    for rank in range(11):
        record(job / f"rank{rank}")
    files = fsspec.filesystem("memory")
    files.put(str(job), f"{url}/job", recursive=True)
    files.pipe_file(f"{url}/notes.md", b"x")
    found = bfcviz.open_all(f"{url}/job{source}")
    local = bfcviz.open_all(job)
    assert [rank.place.rank for rank in found.ranks] == [rank.place.rank for rank in local.ranks]
    assert [rank.peak for rank in found.ranks] == [rank.peak for rank in local.ranks]
    assert found.ranks[0].place.file == f"{url}/job/{local.ranks[0].place.file.name}".replace(":/", "://", 1)
    assert len(found.open(found.ranks[0])) == len(local.open(local.ranks[0]))


def test_what_is_wrong_names_the_url_and_leaves_no_copy(url, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fsspec.filesystem("memory").pipe_file(f"{url}/damaged", b"PAR1" + bytes(100))
    wrong = (f"{url}/missing", f"{url}/damaged", "nothing_such://a/b")
    for each in wrong:
        with pytest.raises(FileError) as caught:
            stream_of(each)
        assert caught.value.path == each
        assert str(tmp_path) not in str(caught.value)
    assert list(Path(tmp_path).iterdir()) == []


def test_a_heap_that_the_trace_does_not_have(tmp_path):
    with pytest.raises(InvalidRequest, match="heap 3"):
        stream_of(str(record(tmp_path / "run")), 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket/job/*.bfc", True),
        ("simplecache::s3://bucket/x", True),
        ("rank::0", False),
        ("see https://pytorch.org: CUDA out of memory", False),
        ("https://x.org\nCUDA out of memory", False),
        ("://", False),
    ],
)
def test_what_is_a_url(text, expected):
    assert is_url(text) is expected


@pytest.mark.parametrize("command", ["why", "info", "holders", "report"])
def test_commands_take_a_url(command, tmp_path, capsys):
    url = record(tmp_path / "run").absolute().as_uri()
    words = ["-o", str(tmp_path / "out.html")] if command == "report" else []
    assert main([command, url, *words]) == 0
    assert capsys.readouterr().out


def test_a_name_with_colons_is_a_local_file(tmp_path):
    path = tmp_path / "rank::0"
    record(path)
    assert len(stream_of(str(path))) == len(requests_of(bfcviz.open(path)))


def test_without_fsspec_a_url_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtra, match="fsspec"):
        stream_of("s3://bucket/trace.parquet")


def test_an_archive_cannot_write_outside_of_the_copy(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("trace/origin.json", "{}")
        archive.writestr("trace/../../evil.txt", "evil")
    before = {*Path(tempfile.gettempdir()).iterdir()}
    with pytest.raises(FileError, match="evil"):
        stream_of(f"zip://trace::{tmp_path / 'x.zip'}", 0)
    assert not [path for path in {*Path(tempfile.gettempdir()).iterdir()} - before if "evil" in path.name]


SECRETS = "http://user:secret@127.0.0.1:9/run.pickle?X-Amz-Signature=" + 300 * "a"


def test_an_error_does_not_tell_passwords_and_signatures():
    with pytest.raises(FileError) as caught:
        stream_of(SECRETS)
    assert caught.value.path == "http://...@127.0.0.1:9/run.pickle"
    for text in (str(caught.value), "".join(traceback.format_exception(caught.value))):
        assert "secret" not in text
        assert "aaaa" not in text


@pytest.mark.parametrize(
    "url",
    [
        "zip://a.parquet::https://h/f.zip?sig=SECRET",
        "simplecache::zip://x::https://u:SECRET@h/f?tok=SECRET#SECRET",
        "HTTPS://h/x?sig=SECRET",
        "az://c/x?sv=1&sig=SECRET",
    ],
)
def test_the_text_of_a_chain_has_no_secret(url):
    shown = remote_file.without_secrets(url)
    assert "SECRET" not in shown
    assert [part.split("//")[0] for part in shown.split("::")] == [
        part.split("//")[0] for part in url.split("::")
    ]


def test_a_query_may_have_colons():
    assert remote_file.without_secrets("https://h/f?sig=a::SECRET") == "https://h/f"


def test_a_name_with_a_mark_of_its_own_is_shown_whole():
    assert remote_file.without_secrets("s3://b/run#3.pickle") == "s3://b/run#3.pickle"
    assert remote_file.without_secrets("s3://b/x?.parquet") == "s3://b/x?.parquet"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("zip://a.parquet::https://h/f.zip?sig=x", "a.parquet"),
        (SECRETS, "run.pickle"),
        ("memory://a/..", "trace"),
        (f"memory://{300 * 'b'}.bfc", "b" * 96 + ".bfc"),
    ],
)
def test_the_copy_has_a_name_that_a_disk_takes_and_the_suffix(url, name, monkeypatch):
    seen = []
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda each: (None, each))
    monkeypatch.setattr(remote_file, "_copy_remote", lambda _system, _inner, copy: seen.append(copy))
    with local_copy(url) as copy:
        assert copy.name == name
        assert copy.resolve() == copy.parent.resolve() / name
    assert seen == [copy]


def test_what_the_disk_has_no_room_for_is_refused_before_it_is_copied(url, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fsspec.filesystem("memory").pipe_file(f"{url}/large/events.bin", bytes(5000))
    monkeypatch.setattr(shutil, "disk_usage", lambda _place: SimpleNamespace(free=4096))
    for source in (f"{url}/large", f"{url}/large/events.bin"):
        with pytest.raises(FileError, match="TMPDIR"):
            stream_of(source)


def test_an_empty_query_hides_nothing_of_the_error():
    with pytest.raises(FileError) as caught:
        stream_of("nothing_such://a/b?")
    assert "nothing_such" in caught.value.cause
    assert "..." not in caught.value.cause
