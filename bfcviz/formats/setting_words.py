"""SettingWords: how a framework names the settings of its allocator, and how it records what a file lacks."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SettingWords:
    """The words for the settings of one framework, as a user types them. "": it has none.

    Attributes:
        title: its name for people.
        limit: sets a limit; `{size}` are bytes, `{mib}` MiB.
        share: sets a limit as a share of the device; `{share}` is from 0 to 1.
        one_region: takes the whole pool as one region at the start; `{size}` are the bytes of the limit.
        release: releases wholly free regions.
        other: an allocator that places chunks by pages, so that regions do not matter.
        fraction: sets the share of the limit at which waste is split off; `{fraction}` is from 0 to 1.
        heap: makes the next run record the chunks of a failure.
        history: makes the next run record every allocation, with its name and time.
        recompute: in training, computes values again for the gradient instead of keeping them.
    """

    title: str
    limit: str = ""
    share: str = ""
    one_region: str = ""
    release: str = ""
    other: str = ""
    fraction: str = ""
    heap: str = ""
    history: str = ""
    recompute: str = ""
