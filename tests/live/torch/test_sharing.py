"""Served tensors are not shared with other processes."""

import pytest
from heaps import MIB
from processes import needs_compiled

from bfcviz.errors import LiveError
from bfcviz.live.torch.serve import serve_torch

pytestmark = needs_compiled


def test_served_memory_is_not_shared_with_other_processes(torch):
    others = torch.UntypedStorage(0x1000)
    with serve_torch():
        served = torch.UntypedStorage(torch.empty(3 * MIB) + 2 * MIB)  # inside of a segment
        assert others._share_cuda_() == ("handle", 0x1000)
        with pytest.raises(LiveError, match="shared with another process"):
            served._share_cuda_()
    with pytest.raises(LiveError, match="shared with another process"), serve_torch():
        served._share_cuda_()  # it outlived the first
    assert others._share_cuda_() == ("handle", 0x1000)
    del torch.UntypedStorage
    with serve_torch() as again:
        torch.empty(1)
    assert again.heaps[0].stats().chunks_in_use == 1
