"""The folder of recorded windows: which are complete, and which files they consist of."""

from pathlib import Path
from typing import Final

WINDOW: Final = "window-"
"""The start of the folders' names; incomplete ones have a dot before it."""


def whole_windows(folder: Path) -> list[Path]:
    """The complete windows in a folder, the oldest first."""
    found = [each for each in folder.glob(f"{WINDOW}*") if each.name[len(WINDOW) :].isdecimal()]
    return sorted(found, key=lambda each: int(each.name[len(WINDOW) :]))


def files_of_windows(folder: Path) -> list[Path]:
    """The complete windows in a folder and their contents, the innermost first; empty if one has other files, too."""
    found: list[Path] = []
    for window in whole_windows(folder):
        inside = sorted(window.rglob("*"), reverse=True)
        files = [path for path in inside if path.is_symlink() or not path.is_dir()]
        if not all(_is_of_profile(path) for path in files) or not any(map(_is_profile, files)):
            return []
        found += [*inside, window]
    return found


def _is_profile(path: Path) -> bool:
    return path.name.endswith(".xplane.pb")


def _is_of_profile(path: Path) -> bool:
    """Whether the profiler, or TensorBoard when it shows a profile, writes files of such names."""
    is_file = path.is_file() and not path.is_symlink()
    return is_file and path.name.endswith((".pb", ".json.gz", ".json", ".profile-empty", ".SSTABLE"))
