"""Refuse to share a served tensor with another process: that process would read wrong addresses.

torch.multiprocessing sends a CUDA handle for the memory where the segment starts, and the tensor's offset from the
segment's start. CUDA's handle stands for the whole allocation: our region, which contains many segments.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from bfcviz.errors import LiveError


def refuse_to_share(torch: Any, is_served: Callable[[int], bool]) -> None:
    """Make PyTorch raise LiveError when served memory is shared; until the process ends, as tensors outlive a `with`.

    Args:
        torch: the module.
        is_served: whether an address is in a heap of ours.
    """
    storage = getattr(torch, "UntypedStorage", None)
    share = getattr(storage, "_share_cuda_", None)
    if share is None or hasattr(share, "__wrapped__"):
        return

    @wraps(share)
    def refuse_or_share(self: Any, *arguments: Any, **options: Any) -> Any:
        address = self.data_ptr()
        if is_served(address):
            raise LiveError(
                f"a CUDA tensor at 0x{address:x} cannot be shared with another process, because bfcviz serves its "
                "memory: CUDA shares whole allocations, and the other process would read the wrong addresses. Send a "
                "copy (tensor.cpu()), or watch PyTorch without serving it: observe_torch"
            )
        return share(self, *arguments, **options)

    storage._share_cuda_ = refuse_or_share  # type: ignore[union-attr]
