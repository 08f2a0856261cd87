"""ResultCache: results of replays, by the digest of the requests, the policy, its options and the limit."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

from bfcviz.errors import FileError
from bfcviz.events.storage.files import read_small, replacing
from bfcviz.events.storage.strict_json import loads
from bfcviz.whatif.policy import Policy
from bfcviz.whatif.policy_table import POLICIES, is_of_table

MOST_KEPT: Final = 20_000
"""Results in memory; the oldest one is dropped."""

_MOST_BYTES: Final = 1 << 16
"""Of one file: a longer one was not written by this class."""


class CacheKey(NamedTuple):
    """What a result depends on.

    Attributes:
        stream: digest of the requests.
        policy: name of the rules.
        options: all options, defaults included, as JSON.
        limit: memory limit in bytes; None: none.
    """

    stream: str
    policy: str
    options: str
    limit: int | None


class ResultCache:
    """Keeps results in memory and, if a folder is given, one small JSON file each.

    Several processes can use one folder. Files of another version of bfcviz, and damaged files, are not used.

    Args:
        folder: for the files; it is made if it does not exist.

    Raises:
        FileError: the folder cannot be made.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._known: dict[CacheKey, Mapping[str, Any]] = {}
        self._folder = None if folder is None else Path(folder)
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise FileError(self._folder, "", f"cannot be made: {error.strerror}") from error

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: CacheKey) -> Mapping[str, Any] | None:
        """The result of this key; None: not known."""
        found = self._known.get(key)
        if found is None and self._folder is not None:
            found = self._read(key)
            if found is not None:
                self._known[key] = found
        return found

    def put(self, key: CacheKey, result: Mapping[str, Any]) -> None:
        """Keep a result of numbers and texts.

        Raises:
            FileError: its file cannot be written.
        """
        while len(self._known) >= MOST_KEPT:
            with suppress(KeyError, StopIteration, RuntimeError):  # another thread was faster
                del self._known[next(iter(self._known))]
        self._known[key] = result
        if self._folder is not None:
            path = self._folder / _file_name(key)
            with replacing(path, overwrite=True) as made:
                made.write_text(json.dumps({"key": _key_json(key), "result": dict(result)}), encoding="utf-8")

    def _read(self, key: CacheKey) -> Mapping[str, Any] | None:
        assert self._folder is not None
        path = self._folder / _file_name(key)
        if not path.exists():
            return None
        try:
            found = loads(read_small(path, _MOST_BYTES))
        except (FileError, ValueError):
            return None
        if not isinstance(found, dict) or found.get("key") != _key_json(key):
            return None
        result = found.get("result")
        return result if isinstance(result, dict) else None


SHARED: Final = ResultCache()
"""The cache of searches without one of their own: in memory, until the process ends."""


def cache_of(cache: ResultCache | str | os.PathLike[str] | None) -> ResultCache:
    """The cache itself, that of a folder, or the shared one."""
    if cache is None:
        return SHARED
    return cache if isinstance(cache, ResultCache) else ResultCache(cache)


def table_options(policy: Policy) -> str | None:
    """All options of a policy as JSON; None: it is not one of the table, so its name does not say its rules."""
    if not is_of_table(policy):
        return None
    return json.dumps({**POLICIES[policy.name].options, **policy.options}, sort_keys=True, default=str)


def _key_json(key: CacheKey) -> list[Any]:
    return [version("bfcviz"), *key]


def _file_name(key: CacheKey) -> str:
    return f"{blake2b(json.dumps(_key_json(key)).encode(), digest_size=16).hexdigest()}.json"
