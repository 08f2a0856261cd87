import gzip
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bfcviz.errors import FileError
from bfcviz.importers import file_content
from bfcviz.importers.file_content import read_content, read_head

BYTES = bytes(range(256)) * 5000


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    path = tmp_path / "packed"
    path.write_bytes(gzip.compress(BYTES))
    return path


def test_plain_and_packed_files_give_the_same_bytes(tmp_path: Path, packed: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(BYTES)
    assert read_content(plain) == read_content(packed) == (BYTES, None)
    assert read_head(plain, 100) == read_head(packed, 100) == BYTES[:100]


def test_members_of_a_gzip_file_are_joined_and_padding_is_none(tmp_path: Path) -> None:
    path = tmp_path / "members"
    path.write_bytes(gzip.compress(b"one ") + gzip.compress(b"two") + bytes(1000))
    assert read_content(path) == (b"one two", None)


def test_a_cut_gzip_file_gives_a_prefix_and_says_so(tmp_path: Path, packed: Path) -> None:
    raw = packed.read_bytes()
    path = tmp_path / "cut"
    for keep in (3, 10, 20, len(raw) // 2, len(raw) - 8, len(raw) - 1):
        path.write_bytes(raw[:keep])
        content = read_content(path)
        assert BYTES.startswith(content.data)
        assert content.cut == f"the gzip file is cut off at byte {keep}"


def test_more_than_the_limit_is_refused_without_being_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(bytes(8 << 20)))
    monkeypatch.setattr(file_content, "MAX_BYTES", 1 << 20)
    with pytest.raises(FileError, match=r"more than 1\.0 MiB"):
        read_content(path)
    monkeypatch.setattr(file_content, "MAX_BYTES", 3)
    with pytest.raises(FileError, match="more than 3 B"):
        read_content(_written(tmp_path / "four", b"four"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 1 << 16), bits=st.integers(1, 255))
def test_a_changed_byte_is_an_error_or_changes_nothing(packed: Path, place: int, bits: int) -> None:
    raw = bytearray(packed.read_bytes())
    raw[2 + place % (len(raw) - 2)] ^= bits
    path = packed.with_name("changed")
    path.write_bytes(raw)
    try:
        content = read_content(path)
    except FileError:
        return
    assert content.data == BYTES or content.cut


def test_what_cannot_be_read_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="there is no such file"):
        read_content(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(FileError, match="not a regular file"):
            read_content(path)
    with pytest.raises(FileError, match="name"):
        read_content(tmp_path / ("x" * 5000))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_one_clear_error(tmp_path: Path) -> None:
    path = _written(tmp_path / "secret", b"secret")
    path.chmod(0)
    with pytest.raises(FileError, match="Permission denied"):
        read_content(path)


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
