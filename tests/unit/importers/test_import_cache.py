"""Copies of imported traces: what a copy gives, when there is one, and when it is not used."""

import errno
import functools
import os
import stat
import subprocess
import sys
import threading

import pytest
from shared import ROOT, SHARED
from unit.importers.made import profile

import bfcviz
from bfcviz.cli import main
from bfcviz.cli.info import info
from bfcviz.importers import import_cache, open_trace
from bfcviz.importers.file_format import Format

SAMPLES = [bfcviz.sample(name) for name in ("oom_log", "oom_dump")]  # the profiles are in `REAL`, too
REAL = [path for path in sorted((SHARED / "real").rglob("*")) if path.is_file() and path.suffix != ".md"]
ASKED = 550_000  # bytes: equal traces have equal answers, so they are compared for the small files only


class Cache:
    """The folder of the copies, and how often a file was imported."""

    def __init__(self, home):
        self.folder = home / "bfcviz" / "imported"
        self.imports = 0

    @property
    def copies(self):
        """The files in the folder, once all are written."""
        for thread in threading.enumerate():
            if thread.name == "bfcviz-cache":
                thread.join()
        return sorted(self.folder.iterdir()) if self.folder.exists() else []


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache that keeps every import."""
    made = Cache(tmp_path / "cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BFCVIZ_CACHE", "2GiB")
    monkeypatch.setattr(import_cache, "_SLOW_S", 0.0)
    monkeypatch.setattr(import_cache, "_SETTLED_NS", -(1 << 62))
    reader = open_trace._trace_reader_of_format

    def counted(form):
        made.imports += 1
        return reader(form)

    monkeypatch.setattr(open_trace, "_trace_reader_of_format", counted)
    return made


one_profile = functools.cache(profile)


@pytest.fixture
def path(tmp_path):
    """A profile."""
    made = tmp_path / "run.xplane.pb"
    made.write_bytes(one_profile())
    return made


def content(trace):
    """All that a trace is."""
    labels = [
        (each.name, dict(each.details)) for each in map(trace.labels.__getitem__, range(len(trace.labels)))
    ]
    return type(trace.source), trace.read(0, len(trace)).tobytes(), labels, trace.origin, trace.path


def answers(trace):
    """What three commands say of a trace, or why they cannot."""
    found = []
    for ask in (info, bfcviz.why, bfcviz.holders):
        try:
            found.append(str(ask(trace)))
        except bfcviz.BfcvizError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("path", [*SAMPLES, *REAL], ids=lambda path: path.name)
def test_a_copy_gives_what_the_import_gave(path, cache):
    try:
        trace = bfcviz.open(path)
    except bfcviz.BfcvizError:  # the text of a message, or not a file for bfcviz
        assert not cache.copies
        return
    assert len(cache.copies) == 1
    copy = bfcviz.open(path)
    assert cache.imports == 1
    assert content(copy) == content(trace)
    if path.stat().st_size < ASKED:
        assert answers(copy) == answers(trace)


def test_commands_print_the_same_from_a_copy(cache, capsys):
    for command in ("info", "why", "holders"):
        printed = []
        for _ in range(2):
            assert main([command, str(bfcviz.sample("oom_log"))]) == 0
            printed.append(capsys.readouterr())
            assert len(cache.copies) == 1
        assert printed[0] == printed[1]
        assert cache.imports == 1
        cache.copies[0].unlink()
        cache.imports = 0


def test_a_command_ends_when_its_copy_is_written(cache, path):
    code = (
        "import sys; from bfcviz.cli import main; from bfcviz.importers import import_cache as cache\n"
        "cache._SLOW_S, cache._SETTLED_NS = 0.0, -(1 << 62)\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, "info", str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (len(cache.copies), done.stderr) == (1, "")
    bfcviz.open(path)
    assert cache.imports == 0


def test_a_copy_is_private(cache, path):
    bfcviz.open(path)
    (copy,) = cache.copies
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700


def test_another_content_name_or_version_is_imported(cache, path, monkeypatch):
    bfcviz.open(path)
    renamed = path.with_name("other.pb")
    renamed.write_bytes(path.read_bytes())
    assert len(cache.copies) == 1
    assert bfcviz.open(renamed).origin.source == "other.pb"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"op 1", b"op X"))
    assert len(cache.copies) == 2
    assert "op X" in bfcviz.open(path).labels.names
    assert len(cache.copies) == 3
    path.write_bytes(data)
    assert "op 1" in bfcviz.open(path).labels.names
    assert cache.imports == 3
    monkeypatch.setattr(import_cache, "_code", lambda: "another version")
    bfcviz.open(path)
    assert cache.imports == 4


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "rubbish with its digest"])
def test_a_damaged_copy_is_not_used(damage, cache, path):
    expected = content(bfcviz.open(path))
    (copy,) = cache.copies
    data = copy.read_bytes()
    middle = len(data) // 2
    copy.write_bytes(
        {
            "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
            "cut": data[:middle],
            "empty": b"",
            "rubbish with its digest": b"rubbish",
        }[damage]
    )
    if damage.endswith("digest"):
        source = copy.stem.rpartition("-")[0]
        copy.rename(copy.with_name(f"{source}-{import_cache._digest(copy)}.bfc"))
    assert content(bfcviz.open(path)) == expected
    assert cache.imports == 2
    assert cache.copies
    assert content(bfcviz.open(path)) == expected
    assert cache.imports == 2  # a good copy is there again


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners of files")
@pytest.mark.parametrize("what", ["folder", "copy", "owner"])
def test_what_others_may_have_written_is_not_used(what, cache, path, monkeypatch):
    bfcviz.open(path)
    (copy,) = cache.copies
    if what == "owner":
        monkeypatch.setattr(os, "geteuid", lambda: copy.stat().st_uid + 1)
    else:
        (copy if what == "copy" else cache.folder).chmod(0o777)
    bfcviz.open(path)
    assert cache.imports == 2


@pytest.mark.parametrize("setting", ["off", "0", "-1", "a lot", "9" * 400])
def test_it_can_be_switched_off(setting, cache, path, monkeypatch):
    bfcviz.open(path)
    assert len(cache.copies) == 1
    monkeypatch.setenv("BFCVIZ_CACHE", setting)
    bfcviz.open(path)
    assert cache.imports == 2


def test_the_copies_used_least_recently_go_first(cache, path, monkeypatch):
    files = [path.with_name(f"{number}.pb") for number in range(4)]
    for number, each in enumerate(files):
        each.write_bytes(path.read_bytes())
        known = set(cache.copies)
        if number < 3:
            bfcviz.open(each)
            (new,) = set(cache.copies) - known
            os.utime(new, (number, number))
    size = max(copy.stat().st_size for copy in cache.copies)
    monkeypatch.setenv("BFCVIZ_CACHE", str(3 * size))
    stranger = cache.folder / "notes.txt"
    stranger.write_bytes(bytes(9 * size))
    bfcviz.open(files[0])  # from its copy, which now is the newest
    bfcviz.open(files[3])
    assert stranger in cache.copies
    imports = cache.imports
    for each in (files[0], files[2], files[3]):
        bfcviz.open(each)
    assert cache.imports == imports
    bfcviz.open(files[1])
    assert cache.imports == imports + 1


def test_a_quick_import_is_not_kept(cache, path, monkeypatch):
    monkeypatch.setattr(import_cache, "_SLOW_S", 60.0)
    bfcviz.open(path)
    assert not cache.copies


def test_a_trace_too_large_to_be_written_at_an_exit_is_not_kept(cache, path, monkeypatch):
    monkeypatch.setattr(import_cache, "_MOST_EVENTS", 3)
    bfcviz.open(path)
    assert not cache.copies


def test_what_an_ended_process_left_is_removed(cache, path):
    cache.folder.mkdir(parents=True, mode=0o700)
    old, new = cache.folder / "old.partial", cache.folder / "new.partial"
    for each in (old, new):
        each.write_bytes(b"begun")
    os.utime(old, (1, 1))
    bfcviz.open(path)
    assert [each.suffix for each in cache.copies] == [".bfc", ".partial"]
    assert not old.exists()


def test_a_file_that_changes_is_not_kept(cache, path, monkeypatch):
    monkeypatch.setattr(import_cache, "_SETTLED_NS", 60 * 10**9)
    bfcviz.open(path)  # written a moment ago
    assert not cache.copies
    monkeypatch.setattr(import_cache, "_SETTLED_NS", -(1 << 62))
    reader = open_trace._trace_reader_of_format

    def grown(form):
        def read(place):
            trace = reader(form)(place)
            with place.open("ab") as file:
                file.write(b"more")
            return trace

        return read

    monkeypatch.setattr(open_trace, "_trace_reader_of_format", grown)
    bfcviz.open(path)
    assert not cache.copies


def test_no_folder_no_room_and_no_file_are_no_errors(cache, path, monkeypatch, capfd):
    expected = content(bfcviz.open(path))
    assert len(cache.copies) == 1
    cache.copies[0].unlink()

    def full(_source, made, _describe):
        made.write_bytes(b"a part")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as room:
        room.setattr(import_cache, "write_blocks", full)
        assert content(bfcviz.open(path)) == expected
        assert not cache.copies
    cache.folder.rmdir()
    cache.folder.parent.rmdir()
    cache.folder.parent.write_text("a file where the folder should be")
    assert content(bfcviz.open(path)) == expected
    assert not cache.copies
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(import_cache.Path, "home", lambda: (_ for _ in ()).throw(RuntimeError))
    assert content(bfcviz.open(path)) == expected
    with pytest.raises(bfcviz.BfcvizError, match="no such file"):
        bfcviz.open(path.with_name("none"))
    assert capfd.readouterr() == ("", "")


def test_what_a_copy_cannot_hold_is_not_kept(cache, path, monkeypatch):
    reader = open_trace._trace_reader_of_format(Format.XPLANE)

    def with_pair(place):
        trace = reader(place)
        vars(trace.source.origin).update(details={**trace.origin.details, "pair": (1, 2)})
        return trace

    monkeypatch.setattr(open_trace, "_trace_reader_of_format", lambda _: with_pair)
    assert bfcviz.open(path).origin.details["pair"] == (1, 2)
    assert not cache.copies


def test_our_own_files_are_not_copied(cache, path):
    trace = bfcviz.open(path)
    saved = trace.save(path.with_suffix(".bfc"))
    assert len(cache.copies) == 1
    bfcviz.open(saved)
    assert len(cache.copies) == 1
