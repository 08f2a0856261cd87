"""The files of the ranks of one job: those in a folder, of a pattern or of a list; and the ranks that their names say.

::

    snapshots/rank0.pickle, rank1.pickle ...            a rank in the name of each file
    logs/run_x1/attempt_0/3/stderr.log                  torchrun --log-dir: a folder named by the rank
    run.bfc/ rank-0/ Process-1/ ...                     `bfcviz record` of several processes
    node7_Jul_07_13_05_22.pickle, node7_4711.log        a host, and a time or the number of a process
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from glob import has_magic, iglob
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from bfcviz.analysis.ranks import RankPlace
from bfcviz.errors import EmptyPath, FileError
from bfcviz.events.storage.folder import EVENTS_FILE, MAIN, ORIGIN_FILE, folder_order
from bfcviz.formats.tensorflow import whole_windows
from bfcviz.importers.file_format import detect_format
from bfcviz.importers.message_reader import StatedFailures, read_message_file
from bfcviz.importers.remote_file import files_at, is_url

MOST_FILES: Final = 10_000
"""Files that are looked at; a folder with more is not a folder of ranks."""

_DEEPEST: Final = 6
"""Folders inside each other: torchrun's log of a rank lies four below `--log-dir`."""

Source = str | os.PathLike[str]


class RankFiles(NamedTuple):
    """The files of the ranks of one job."""

    places: Sequence[RankPlace]  # one a file that is read as a rank, in the order of their names
    others: int  # files in the folders that are none of the formats that bfcviz reads
    stated: Mapping[Path | str, StatedFailures]  # what the logs tell that were read to know that they count


def rank_files(sources: Sequence[Source]) -> RankFiles | None:
    """The files of ranks that these words name, if they name several; None: they name one file, or nothing.

    A file that is named, or that a pattern matches, counts whatever it holds. Of a folder those count that have a
    format that bfcviz reads, those with the same ending, which are damaged, logs with an out-of-memory message, and
    logs without one whose names differ from those only in numbers.

    Args:
        sources: paths of files and folders, patterns such as `snapshots/*.pickle`, and URLs of these, of which only
            the names decide what is read.

    Raises:
        FileError: a path is empty, or a folder has too many files.
    """
    found: dict[Path | str, None] = {}
    stated: dict[Path | str, StatedFailures] = {}
    others, is_one = 0, len(sources) == 1
    for source in sources:
        if not os.fspath(source):
            raise EmptyPath
        if is_url(source):
            urls = files_at(str(source), _ENDINGS, MOST_FILES)
            is_one = is_one and urls == [source]
            found |= dict.fromkeys(sorted(urls, key=folder_order))
            continue
        path = Path(source)
        if _is_rank_folder(path):
            inside, left_out = _in_folder(path, stated)
            is_one = is_one and (not inside or inside == [path])
            found |= dict.fromkeys(inside or [path])
            others += left_out
        elif not os.path.lexists(path) and (matches := _rank_files_of_pattern(path)):
            is_one = False
            found |= dict.fromkeys(matches)
        elif is_one:
            return None
        else:
            found[path] = None
    return None if is_one else RankFiles(_ranks_by_file_names(list(found)), others, stated)


def _is_rank_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a text that is no path: too long, or with a zero
        return False


def _rank_files_of_pattern(pattern: Path) -> list[Path]:
    """The files and recordings of ranks that match a pattern; empty if it is none."""
    text = str(pattern)
    if not has_magic(text) or "\n" in text or "\0" in text:
        return []
    try:
        found = iglob(text, recursive=True)  # noqa: PTH207  Path.glob takes no absolute pattern
        matches = [Path(each) for each in islice(found, MOST_FILES + 1)]
    except (OSError, re.error):
        return []
    _check_rank_file_count(pattern, len(matches))
    return sorted((each for each in matches if each.is_file() or each.is_dir()), key=folder_order)


# ------------------------------------------------------------------------------
# The files in a folder.


def _in_folder(folder: Path, stated: dict[Path | str, StatedFailures]) -> tuple[list[Path], int]:
    """The recordings and readable files in a folder of ranks, and how many other files it has; keeps what logs tell."""
    if whole_windows(folder):  # windows of one run, one after the other
        return [], 0
    readable: list[Path] = []
    texts: list[Path] = []
    others: list[Path] = []
    for path in _walk_rank_folder(folder):
        if path.is_dir() or _is_readable_rank_file(path):
            readable.append(path)
        elif (told := _failures_of_rank_log(path)) is not None:
            texts.append(path)
            stated[path] = told
        else:
            others.append(path)
    endings = {_rank_file_ending(path) for path in readable if path.is_file()}
    names = {_NUMBER.sub("0", str(path)) for path in texts}
    more = [
        path for path in others if _rank_file_ending(path) in endings or _NUMBER.sub("0", str(path)) in names
    ]
    return sorted([*readable, *texts, *more], key=folder_order), len(others) - len(more)


def _walk_rank_folder(folder: Path) -> Iterator[Path]:
    """The recordings in a folder of ranks, and the files that belong to none."""
    count = 0
    for place, folders, files in os.walk(folder, onerror=None):
        here = Path(place)
        depth = len(here.relative_to(folder).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if depth < _DEEPEST else []
        count += len(files)
        _check_rank_file_count(folder, count)
        if {ORIGIN_FILE, EVENTS_FILE} & {*files}:  # without its origin it is told as damaged
            yield here
            continue
        for name in sorted(files):
            path = here / name
            if not name.startswith(".") and path.is_file():
                yield path


def _check_rank_file_count(path: Path, count: int) -> None:
    if count > MOST_FILES:
        raise FileError(
            path, "", f"has more than {MOST_FILES:,} files; give the folder or the pattern of one job's ranks"
        )


def _is_readable_rank_file(path: Path) -> bool:
    try:
        detect_format(path)
    except FileError:
        return False
    return True


_LOG_ENDINGS: Final = re.compile(
    r"(?:\.(?:log|txt|out|err|stdout|stderr|[eo]?\d{1,12})(?:\.gz)?)?", re.IGNORECASE
)
"""Endings of logs, and of files without one: a source or a page that quotes an error is no rank."""


def _failures_of_rank_log(path: Path) -> StatedFailures | None:
    """What a rank's log without a heap tells; None where it has no out-of-memory message."""
    if not _LOG_ENDINGS.fullmatch(_rank_file_ending(path)):
        return None
    try:
        found = read_message_file(path)
    except FileError:
        return None
    return found if found is not None and found.failures else None


def _rank_file_ending(path: Path) -> str:
    return "".join(path.suffixes[-2:] if path.suffix == ".gz" else path.suffixes[-1:]).lower()


# ------------------------------------------------------------------------------
# Ranks and hosts in the names of files and folders.

_RANK: Final = re.compile(r"(?<![A-Za-z])(?:global[-_]?)?rank[-_.=]?(\d{1,6})(?!\d)", re.IGNORECASE)
_ATTEMPT: Final = re.compile(r"(?:^|/)attempt_(\d{1,4})/(\d{1,4})/std(?:out|err)$")
"""Of torchrun: how often it has restarted the job, and the rank on this node."""

_WORKER: Final = re.compile(
    r"(?<![A-Za-z])([A-Za-z]*?(?:worker|process|proc|task|gpu|cuda|device|shard|replica|pe)[-_.:]?)(\d{1,4})(?![A-Za-z0-9])",
    re.IGNORECASE,
)
"""Such as `worker-3`, `gpu1`, and the names that multiprocessing and joblib give: `SpawnProcess-2`, `LokyProcess-1`.
More digits are the number of a process."""

_HOST: Final = re.compile(
    r"(?<![A-Za-z])((?:node|host|nid)[-_]?[A-Za-z0-9]+?)(?=[-_.]|rank|$)", re.IGNORECASE
)
_TIME: Final = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)_\d\d_\d\d_\d\d_\d\d"
_HOST_FIRST: Final = re.compile(rf"(?!slurm-)([A-Za-z][\w.-]*?)[_.-](?:\d{{3,8}}|{_TIME})")
"""A host before the number of a process, or before a time as in PyTorch's documents (`"%b_%d_%H_%M_%S"`).
A word that all files have is the name of the program; Slurm names the output of a job `slurm-4711.out`."""

_ENDINGS: Final = re.compile(
    r"(?:\.(?:gz|pickle|pkl|pt|log|txt|out|err|json|csv|parquet|bfc|pb|prof|xplane|memory_dump|bin))+$",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"\d+")
_LARGEST_RANK: Final = 9999
"""A larger number that differs from file to file is that of a process, or a time."""


def _ranks_by_file_names(paths: Sequence[Path | str]) -> list[RankPlace]:
    """The ranks of files, by their names and those of their folders below the folder of all."""
    texts = _rank_path_texts(paths)
    found = [_rank_place_of_path(path, text) for path, text in zip(paths, texts, strict=True)]
    hosts = [match[1] if (match := _HOST_FIRST.fullmatch(Path(text).name)) else "" for text in texts]
    hosts = ["" if each.name.startswith("rank ") else host for each, host in zip(found, hosts, strict=True)]
    if len(set(hosts)) > 1:
        found = [replace(each, host=each.host or host) for each, host in zip(found, hosts, strict=True)]
    if all(each.rank is None for each in found):
        ranks = _varying_rank_numbers(texts)
        if ranks is not None:
            found = [
                replace(each, rank=rank, rank_from="name", name=f"rank {rank}")
                for each, rank in zip(found, ranks, strict=True)
            ]
    return found


def _rank_path_texts(paths: Sequence[Path | str]) -> list[str]:
    """The part of each rank's path below the common folder, without endings; `main`: a recording with others inside."""
    absolute = [Path("/", path) if isinstance(path, str) else path.absolute() for path in paths]
    around = {parent for path in absolute for parent in path.parents}
    inner = [path.parent for path in absolute if path not in around]
    common = Path(os.path.commonpath(inner)) if inner else Path()
    return [
        MAIN if path in around else _ENDINGS.sub("", str(path.relative_to(common))) or path.name
        for path in absolute
    ]


def _rank_place_of_path(path: Path | str, text: str) -> RankPlace:
    parts = Path(text).parts[::-1]
    host = next((match[1] for part in parts if (match := _HOST.search(part))), "")
    if attempt := _ATTEMPT.search(text):
        number, rank = map(int, attempt.groups())
        return RankPlace(path, f"rank {rank} in attempt {number}", rank, host, "name")
    for pattern in (_RANK, _WORKER):
        for part in parts:
            if matches := list(pattern.finditer(part)):
                last = matches[-1]
                name = f"rank {int(last[1])}" if pattern is _RANK else last[0]
                return RankPlace(path, name, int(last[pattern.groups]), host, "name")
    return RankPlace(path, text, None, host)


def _varying_rank_numbers(texts: Sequence[str]) -> list[int] | None:
    """The number in each name that is a rank: the only one in which they differ, or one that counts them."""
    if len({_NUMBER.sub("0", text) for text in texts}) != 1 or len(texts) < 2:
        return None
    columns = [list(map(int, column)) for column in zip(*map(_NUMBER.findall, texts), strict=True)]
    several = [column for column in columns if len(set(column)) > 1]
    unique = [column for column in several if len(set(column)) == len(column)]
    count = len(texts)
    counted = (list(range(count)), list(range(1, count + 1)))
    counting = [column for column in unique if sorted(column) in counted]
    if counting:
        return counting[-1]
    single = unique if len(several) == 1 else []
    return single[0] if single and max(single[0]) <= _LARGEST_RANK else None
