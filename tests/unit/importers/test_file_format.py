import gzip
from pathlib import Path

import pytest
from shared import SHARED, needs_shared
from unit.importers.profile_maker import PlaneMaker, chunk, memory

import bfcviz
from bfcviz.errors import FileError
from bfcviz.events.storage.blocks import MAGIC
from bfcviz.importers.file_format import Format, detect_format


def written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def profile() -> bytes:
    plane = PlaneMaker()
    plane.line("main", [("MemoryAllocation", 0, memory("GPU_0_bfc", 0x1000, 256, 256))])
    return plane.to_bytes()


def test_formats_are_told_by_content_not_by_name(tmp_path: Path) -> None:
    odd = tmp_path / "odd.txt"
    assert detect_format(written(odd, profile())) == Format.XPLANE
    assert detect_format(written(odd, gzip.compress(profile()))) == Format.XPLANE
    assert detect_format(written(odd, chunk(4, b"\x05host") + profile())) == Format.XPLANE
    assert detect_format(written(odd, b"PAR1" + bytes(100))) == Format.PARQUET
    assert detect_format(written(odd, MAGIC + bytes(100))) == Format.BLOCKS
    assert detect_format(written(tmp_path / "trace" / "events.bin", b"").parent) == Format.FOLDER


@needs_shared
def test_real_profiles_are_told() -> None:
    paths = sorted((SHARED / "real" / "tensorflow").glob("*.xplane.pb.gz"))
    assert [detect_format(path) for path in paths] == [Format.XPLANE] * 3


@pytest.mark.parametrize(
    "text",
    [b"hello", b"\n\n\n  text\n", b'\n{"a": 1}', b'\n*"2', "größer\n".encode(), b"\x1b[31mred\x1b[0m"],
)
def test_text_is_called_text(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(FileError, match="text file"):
        detect_format(written(tmp_path / "a.xplane.pb", text))


@pytest.mark.parametrize(
    "data", [b"\x80\x07pickle\x94.", bytes(100), b"\x89PNG\r\n\x1a\n" + bytes(50), b"\x0a\x05\xff\x00"]
)
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(FileError, match="unknown format"):
        detect_format(written(tmp_path / "a.xplane.pb", data))


REAL = {
    ".log": Format.TENSORFLOW_LOG,
    ".vlog.gz": Format.TENSORFLOW_LOG,
    ".memory_dump": Format.MEMORY_DUMP,
    ".pickle": Format.TORCH_SNAPSHOT,
    ".prof": Format.PPROF,
    "vma_sample.json": Format.VMA,
    ".xplane.pb.gz": Format.XPLANE,
}


@needs_shared
def test_every_real_file_is_told() -> None:
    told = 0
    for path in (SHARED / "real").rglob("*"):
        for end, format_ in REAL.items():
            if path.name.endswith(end):
                assert detect_format(path) == format_, path.name
                told += 1
    assert told > 20


@needs_shared
def test_a_table_of_other_things_is_refused_in_one_sentence() -> None:
    with pytest.raises(FileError, match=r"text file.*xplane\.pb"):
        detect_format(SHARED / "real" / "expected.jsonl")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_json_is_told_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "dump"
    assert detect_format(written(path, '{"DefaultPools": {}}'.encode(encoding))) == Format.VMA
    assert detect_format(written(path, '{"traceEvents": []}'.encode(encoding))) == Format.CHROME_TRACE


def test_empty_missing_and_foreign_folders_are_refused(tmp_path: Path) -> None:
    for empty in (b"", gzip.compress(b"")):
        with pytest.raises(FileError, match="empty"):
            detect_format(written(tmp_path / "empty", empty))
    for missing in ("missing", "x" * 5000, "a\0b"):
        with pytest.raises(FileError, match=r"no such file|cannot be read"):
            detect_format(tmp_path / missing)
    with pytest.raises(FileError, match=r"folder.*xplane\.pb"):
        detect_format(tmp_path)


def test_a_log_folder_names_the_profile_in_it(tmp_path: Path) -> None:
    path = written(tmp_path / "logs" / "plugins" / "profile" / "2025" / "host.xplane.pb", profile())
    with pytest.raises(FileError, match="open the profile in it") as caught:
        detect_format(tmp_path / "logs")
    assert str(path) in str(caught.value)


def test_a_folder_of_windows_is_a_profile(tmp_path: Path) -> None:
    written(tmp_path / "window-000001" / "plugins" / "profile" / "1" / "host.xplane.pb", profile())
    assert detect_format(tmp_path) is Format.XPLANE


@pytest.mark.parametrize("is_file", [True, False])
def test_of_a_message_the_error_names_the_command_that_reads_it(tmp_path, is_file):
    text = "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity)"
    path = tmp_path / "failure.txt"
    path.write_text(text)
    with pytest.raises(FileError) as caught:
        bfcviz.open(path if is_file else text)
    assert "bfcviz why" in caught.value.cause
    assert ("bfcviz report" in caught.value.cause) == is_file
