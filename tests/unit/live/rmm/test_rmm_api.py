"""What is said where RMM or a GPU is missing."""

import sys

import pytest

from bfcviz.errors import LiveError
from bfcviz.live.rmm import observe_rmm, serve_rmm


@pytest.mark.parametrize("watch", [serve_rmm, observe_rmm])
def test_without_rmm_or_a_gpu_it_says_what_to_do(rmm, monkeypatch, watch):
    rmm.devices = 0
    with pytest.raises(LiveError, match="cudaErrorInsufficientDriver"):
        watch()
    monkeypatch.setitem(sys.modules, "rmm", None)
    with pytest.raises(LiveError, match="pip install rmm-cu12"):
        watch()
