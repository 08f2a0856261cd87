"""Lets the standby become the first kernel of a server."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

from bfcviz.cli.standby import Standby

_NAME = "local-provisioner"  # the one of every kernel that names no other


class StandbyProvisioner(LocalProvisioner):  # type: ignore[misc]
    """Starts a kernel by the standby, if it is there, else as Jupyter does.

    Args:
        standby: it.
        options: those of the base class.
    """

    def __init__(self, standby: Standby, **options: Any) -> None:
        super().__init__(**options)
        self._standby = standby

    async def launch_kernel(self, cmd: list[str], **options: Any) -> KernelConnectionInfo:
        """Start the kernel of the command line `python -m ipykernel_launcher ...`."""
        arguments = cmd[cmd.index("ipykernel_launcher") + 1 :]
        process = self._standby.become_kernel(arguments, options.get("env", os.environ), options.get("cwd"))
        if process is None:
            return await super().launch_kernel(cmd, **options)
        self.process, self.pid, self.pgid = process, process.pid, os.getpgid(process.pid)
        return self.connection_info


@dataclass(frozen=True)
class _StandbyEntry:
    """What the factory of provisioners holds of each: an entry point."""

    name: str
    value: str
    load: Callable[[], Callable[..., LocalProvisioner]]


def use(standby: Standby) -> None:
    """Let the next kernel of this process be the standby."""
    value = f"{StandbyProvisioner.__module__}:{StandbyProvisioner.__name__}"
    entry: Any = _StandbyEntry(_NAME, value, lambda: partial(StandbyProvisioner, standby))
    KernelProvisionerFactory.instance().provisioners[_NAME] = entry
