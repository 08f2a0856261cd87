"""The scripts that a page of Voila begins with, in one file: it asks for more than 60 otherwise, one after another.

Webpack made them. A chunk, such as `1621.voila.js`, only puts its modules into an array, and the code that needs
them finds them there; what is missing is loaded as before. So a file with too few chunks costs time and nothing else.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ENTRY: Final = "voila.js"
"""Voila's own script, which loads and runs its chunks; it begins when the page has loaded."""

_SHARED: Final = re.compile(r'(\d+):\(\)=>\w+\("default",(.*?)(?=,\d+:\(\)=>\w+\("default"|\})')
_CONSUMES: Final = re.compile(r"\b(\d+):\[(\d+(?:,\d+)*)\]")
_LOADED: Final = re.compile(r"\.e\((\d+)\)")
_CHUNK: Final = re.compile(r"\d+\.\w+\.js")


def first_scripts(static: Path, extensions: Iterable[Path]) -> bytes:
    """The chunks that `voila.js` loads first, all chunks of the extensions, and `voila.js`.

    Args:
        static: the folder of Voila's scripts.
        extensions: the folders of the scripts of extensions of JupyterLab; the page still asks for their entry points.
    """
    entry = (static / ENTRY).read_text(encoding="utf-8")
    files = [static / f"{number}.{ENTRY}" for number in _first_chunks(entry)]
    for folder in extensions:
        files += sorted(each for each in folder.glob("*.js") if _CHUNK.fullmatch(each.name))
    chunks = [each.read_bytes() for each in files if each.is_file()]
    return b"\n;".join([*chunks, entry.encode()])


def _first_chunks(entry: str) -> Iterator[str]:
    """The numbers of the chunks that this script needs before it runs: those it names, and what these need."""
    first = re.search(r"Promise\.all\(\[(.*?)\]\)", entry)
    shared, consumes = dict(_SHARED.findall(entry)), dict(_CONSUMES.findall(entry))
    found: set[str] = set()
    waiting = _LOADED.findall(first[1]) if first else []
    while waiting:
        number = waiting.pop()
        if number in found:
            continue
        found.add(number)
        yield number
        for module in consumes.get(number, "").split(","):
            waiting += _LOADED.findall(shared.get(module, ""))
