"""Memory of this machine: total, available, and the limits of this process. Sizes in bytes."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bfcviz.allocator.sub_allocators import pages
from bfcviz.units import MiB

_CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")
_LIMITS: Final = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))


def total_memory() -> int:
    """Memory of the machine, or the limit of this process's control group (a container) if that is lower."""
    return min([_installed_memory(), *(limit for limit, _ in _group_limits())])


def reserve() -> int:
    """Bytes that a region of a heap must leave available on the machine."""
    return total_memory() // 32


def available_memory() -> int:
    """Bytes that can be allocated now without swapping: MemAvailable, within the control group's limit."""
    left = [max(limit - used, 0) for limit, used in _group_limits()]
    return min([pages.available_memory(), total_memory(), *left])


def default_limit() -> int:
    """A default limit for a heap of host memory.

    An eighth of all memory stays for the rest of this process and for others; if little is available, half of that.
    """
    available = available_memory()
    limit = max(available - total_memory() // 8, available // 2)
    return max(limit // (64 * MiB) * 64 * MiB, 64 * MiB)


def _installed_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _group_limits() -> Iterator[tuple[int, int]]:
    """Limit and unreclaimable use of each control group of this process."""
    for folder in _group_folders():
        for limit_name, used_name in _LIMITS:
            limit = _number(folder / limit_name)
            if limit is not None and limit < 1 << 62:  # version 1 writes nearly 2^63 for "none"
                used = _number(folder / used_name) or 0
                yield limit, max(used - _page_cache(folder), 0)


def _group_folders() -> Iterator[Path]:
    """The folders of this process's memory control groups, from the innermost to the root."""
    for controllers, path in _group_paths():
        if controllers in ("", "memory"):
            inside = Path(path.lstrip("/"))
            yield from (_CONTROL_GROUPS / controllers / part for part in (inside, *inside.parents))


def _group_paths() -> list[tuple[str, str]]:
    """Controllers (none: version 2) and path of each control group of this process."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    parts = [line.split(":", 2) for line in lines]
    return [(part[1], part[2]) for part in parts if len(part) == 3]


def _page_cache(folder: Path) -> int:
    """Bytes of files that the kernel can drop at once."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("inactive_file ", "active_file ")))


def _number(file: Path) -> int | None:
    """The number in a file; None: the file is absent or contains `max`."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
