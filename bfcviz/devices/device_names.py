"""The names of physical and logical devices, in TensorFlow's forms: `/device:GPU:0`, `/physical_device:GPU:0`."""

import re
from dataclasses import dataclass
from typing import Final

from bfcviz.errors import UnknownDevice

TASK: Final = "/job:localhost/replica:0/task:0"
_NAME: Final = re.compile(rf"(?:{TASK})?/?(?:(?:physical_)?device:)?(CPU|GPU):([0-9]{{1,9}})", re.IGNORECASE)


@dataclass(frozen=True, order=True)
class DeviceName:
    """The name of a physical or logical device: its type, `CPU` or `GPU`, and the index among those of that type."""

    device_type: str
    index: int

    @property
    def short(self) -> str:
        """The short name of a device, such as `/device:GPU:0`."""
        return f"/device:{self.device_type}:{self.index}"

    @property
    def full(self) -> str:
        """The full name of a device: the task's name followed by the short name."""
        return f"{TASK}{self.short}"

    @property
    def physical(self) -> str:
        """The name of a physical device, such as `/physical_device:GPU:0`."""
        return f"/physical_device:{self.device_type}:{self.index}"


def parse_name(text: str) -> DeviceName:
    """Parse the name of a physical or logical device in any form: full, short, `GPU:0`, or the old `gpu:0`.

    Raises:
        UnknownDevice: the text is not a device name.
    """
    match = _NAME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise UnknownDevice(
            f"{text!r} is not a device name: write '/device:GPU:0', 'CPU:0' or '{TASK}/device:GPU:0'"
        )
    return DeviceName(match[1].upper(), int(match[2]))
