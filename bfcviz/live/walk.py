"""Which Python stack this is, as a number; in C: walk.pxd, where more is told."""
# ruff: noqa: D102, D103  the comments stand in walk.pxd

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any


class Walk:
    """What the C struct of the same name is."""

    def __init__(self, tell: Callable[[FrameType, int], int], depth: int, most: int) -> None:
        self.tell = tell
        self.depth = depth
        self.most = most
        self.numbers: dict[tuple[int, ...], int] = {}
        self.kept: list[CodeType] = []  # so that no other code has an address of these
        self.missed = 0

    @property
    def count(self) -> int:
        return len(self.numbers)

    def number(self, label: int) -> int:
        top = _caller(sys._getframe())  # noqa: SLF001  there is no other way
        chain = [label]
        codes: list[CodeType] = []
        frame: FrameType | None = top
        while frame is not None and len(codes) < self.depth:
            codes.append(frame.f_code)
            chain += (id(frame.f_code), frame.f_lasti)  # code that is equal may be of other modules
            frame = frame.f_back
        key = tuple(chain)
        number = self.numbers.get(key, 0)
        if number == 0 and self.count < self.most and (number := self.tell(top, label)):
            self.numbers[key] = number
            self.kept += codes
        if number == 0:
            self.missed += 1
        return number or label


def _caller(frame: FrameType) -> FrameType:
    """The first frame that is not ours: in C there are none of ours either."""
    while frame.f_globals.get("__name__", "").startswith("bfcviz.") and frame.f_back is not None:
        frame = frame.f_back
    return frame


def new(_api: Any, tell: Callable[[FrameType, int], int], depth: int, most: int) -> Walk:
    return Walk(tell, depth, most)


def delete(walk: Walk) -> None:
    """Python's collector does it."""


def number(walk: Walk, label: int) -> int:
    return walk.number(label)


def hook(_walk: Walk) -> tuple[int, int]:
    return 0, 0
