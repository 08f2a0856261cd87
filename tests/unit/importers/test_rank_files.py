"""Which files are the ranks of one job, and the ranks and hosts that their names say."""

import gzip
from pathlib import Path

import pytest
from unit.analysis.built import state

from bfcviz.errors import FileError
from bfcviz.events.storage.recording import Recording
from bfcviz.importers import rank_files as module
from bfcviz.importers.rank_files import rank_files


@pytest.fixture(scope="module")
def trace_file(tmp_path_factory):
    return state([[1, -1]]).save(tmp_path_factory.mktemp("trace") / "a.parquet")


@pytest.fixture
def folder(tmp_path, trace_file):
    """A function that makes a folder with a trace of each name."""

    def make(*names):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(trace_file.read_bytes())
        return tmp_path

    return make


def named(*names):
    """Rank and host of files of these names."""
    found = rank_files([Path(name) for name in names])
    return [(place.rank, place.host) for place in found.places]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["rank0.pickle", "rank_1.pickle", "x-rank-12.pickle.gz"], [(0, ""), (1, ""), (12, "")]),
        (["snapshot_0.pickle", "snapshot_10.pickle"], [(0, ""), (10, "")]),
        (["mem.0.pickle", "mem.1.pickle"], [(0, ""), (1, "")]),
        (["run/0/stderr.log", "run/1/stderr.log"], [(0, ""), (1, "")]),
        (["t_9f/attempt_0/3/stderr.log", "t_9f/attempt_0/4/stderr.log"], [(3, ""), (4, "")]),
        (["1/rank.0/stdout", "1/rank.1/stdout"], [(0, ""), (1, "")]),
        (["worker-3", "worker-4"], [(3, ""), (4, "")]),
        (["SpawnProcess-1", "SpawnProcess-2"], [(1, ""), (2, "")]),
        (["LokyProcess-7/x", "LokyProcess-8/x"], [(7, ""), (8, "")]),
        (["node1_rank8.log", "node2_rank16.log"], [(8, "node1"), (16, "node2")]),
        (["alpha_4711.log", "beta_4712.log"], [(None, "alpha"), (None, "beta")]),
        (
            ["gpu7a_Jul_07_13_05_22.pickle", "gpu7b_Jul_07_13_05_23.pickle"],
            [(None, "gpu7a"), (None, "gpu7b")],
        ),
        (["train_27664.log", "train_27665.log"], [(None, ""), (None, "")]),
        (["step_100_0.pickle", "step_100_1.pickle"], [(0, ""), (1, "")]),
        (["20240103-101112-0.pt", "20240103-101113-1.pt"], [(0, ""), (1, "")]),
        (["before.pickle", "after.pickle"], [(None, ""), (None, "")]),
    ],
)
def test_names_say_rank_and_host(names, expected):
    assert named(*names) == expected


def test_attempts_of_torchrun_are_told_apart():
    names = [f"t_9f/attempt_{attempt}/{rank}/stderr.log" for attempt in (0, 1) for rank in (2, 3)]
    assert [(place.rank, place.name) for place in rank_files([Path(name) for name in names]).places] == [
        (2, "rank 2 in attempt 0"),
        (3, "rank 3 in attempt 0"),
        (2, "rank 2 in attempt 1"),
        (3, "rank 3 in attempt 1"),
    ]


def test_a_folder_has_those_that_can_be_read_and_the_damaged_among_them(folder):
    path = folder("rank0.parquet", "sub/rank1.parquet", "sub/deep/rank10.parquet")
    (path / "rank2.parquet").write_bytes(b"nothing of this kind")
    (path / "README.md").write_text("notes")
    (path / ".hidden").write_text("notes")
    found = rank_files([path])
    assert sorted(place.file.name for place in found.places) == [
        "rank0.parquet",
        "rank1.parquet",
        "rank10.parquet",
        "rank2.parquet",
    ]
    assert found.others == 1


def test_recordings_are_one_rank_each(tmp_path):
    for name in ("", "rank-0", "rank-1", "Process-2"):
        Recording(tmp_path / "rank8.bfc" / name).close()
    (tmp_path / "rank8.bfc" / "rank-1" / "origin.json").rename(
        tmp_path / "rank8.bfc" / "rank-1" / "events.bin"
    )
    found = rank_files([tmp_path / "rank8.bfc"])
    assert [(place.name, place.rank) for place in found.places] == [
        ("main", None),
        ("Process-2", 2),
        ("rank 0", 0),
        ("rank 1", 1),
    ]


def test_recordings_beside_each_other_keep_their_names(tmp_path):
    for name in ("before.bfc", "after.bfc"):
        Recording(tmp_path / name).close()
    found = rank_files([tmp_path / "before.bfc", tmp_path / "after.bfc"])
    assert [(place.name, place.rank) for place in found.places] == [("before", None), ("after", None)]


def test_one_file_is_not_several(folder, tmp_path):
    path = folder("a.parquet")
    Recording(tmp_path / "run").close()
    for source in (
        "missing",
        "-",
        path / "a.parquet",
        tmp_path / "run",
        "CUDA out of memory [*?]\nno",
        "x" * 9999,
        "\0",
    ):
        assert rank_files([source]) is None
    (tmp_path / "empty").mkdir()
    assert rank_files([tmp_path / "empty"]) is None


def test_patterns_and_lists(folder):
    path = folder("a/rank0.parquet", "a/rank1.parquet", "b/rank2.parquet")
    (path / "a" / "rank1.txt").write_text("x")
    assert len(rank_files([path / "*/rank*.parquet"]).places) == 3
    assert len(rank_files([path / "**/rank*"]).places) == 4  # a pattern says what it wants
    assert len(rank_files([path / "a/rank0.parquet", path / "a", path / "b"]).places) == 3
    assert [
        place.rank for place in rank_files([path / "a/rank1.parquet", path / "b/rank2.parquet"]).places
    ] == [1, 2]


def test_a_folder_with_too_many_files_is_refused(folder, monkeypatch):
    monkeypatch.setattr(module, "MOST_FILES", 2)
    path = folder("rank0.parquet", "rank1.parquet", "rank2.parquet")
    for source in (path, path / "*.parquet"):
        with pytest.raises(FileError, match="more than 2 files"):
            rank_files([source])


def test_a_folder_that_contains_itself_ends(folder):
    path = folder("rank0.parquet", "rank1.parquet")
    (path / "loop").symlink_to(path)
    assert len(rank_files([path]).places) == 2


def test_an_empty_path_is_not_this_folder(monkeypatch, folder):
    monkeypatch.chdir(folder("rank0.parquet", "rank1.parquet"))
    with pytest.raises(FileError, match="empty"):
        rank_files([""])
    assert len(rank_files(["."]).places) == 2


def test_a_log_with_a_message_is_a_rank_and_a_page_that_quotes_one_is_not(tmp_path):
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n"
    for name in ("0/stderr.log", "1/stderr.log", "2/stderr.log.gz", "README.md", "train.py", "3/stdout.log"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        written = "epoch 1\n" if "stdout" in name else text
        path.write_bytes(gzip.compress(written.encode()) if name.endswith(".gz") else written.encode())
    found = rank_files([tmp_path])
    assert [place.rank for place in found.places] == [0, 1, 2]
    assert found.others == 3
