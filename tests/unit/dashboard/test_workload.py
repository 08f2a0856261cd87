"""A workload in its own thread: its result, its exception, and a cancelled wait."""

import asyncio
import threading

import pytest

from bfcviz.dashboard.renderer import Workload

PATIENCE_S = 60


def test_its_exception_is_raised_again_and_stored():
    ended = []
    workload = Workload(int, ("x",), lambda: ended.append(True))
    with pytest.raises(ValueError, match="invalid literal"):
        workload.result(PATIENCE_S)
    assert (workload.done, type(workload.error)) == (True, ValueError)


def test_cancelling_a_wait_does_not_cancel_it():
    go_on = threading.Event()

    async def run():
        workload = Workload(go_on.wait, (PATIENCE_S,), lambda: None)
        waiter = asyncio.ensure_future(asyncio.wait_for(workload, PATIENCE_S))
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert not workload.done
        go_on.set()
        return await workload

    assert asyncio.run(run()) is True
