"""Short forms of addresses and labels for sentences and lists."""

from typing import Final

from bfcviz.events.trace import Trace

_LONGEST_NAME: Final = 80


def short_address(address: int) -> str:
    """The last eight hexadecimal digits, enough to tell 4 GiB apart, as in `0x…04c0ff00`; small addresses whole."""
    return f"{address:#x}" if address < 1 << 32 else f"0x…{address & 0xFFFFFFFF:08x}"


def short_name(trace: Trace, label: int) -> str:
    """What a label says, cut to 80 characters, or that there is none."""
    if label == 0:
        return "an unnamed request"
    name = trace.labels.name(label)
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
