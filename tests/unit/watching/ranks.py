"""Processes that record to one folder, without a cluster, and the view of it."""

import pytest
from heaps import MIB, new_heap

from bfcviz.events.origin import Pool
from bfcviz.events.storage.recording import Recording
from bfcviz.watching.workers_dashboard import WorkersDashboard


class Rank:
    """A process that records: a heap of 8 MiB at most."""

    def __init__(self, folder, limit=8 * MIB):
        self.recording = Recording(folder, [Pool("numpy", limit)], details={"started_ns": 1})
        self.heap = new_heap(limit, log=self.recording.log, labels=self.recording.labels)

    def end(self):
        self.recording.close()


@pytest.fixture
def ranks(tmp_path):
    made = []

    def make(name, **options):
        made.append(Rank(tmp_path / name, **options))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.fixture
def board(tmp_path):
    found = WorkersDashboard(tmp_path, start=False)
    yield found
    found.close()


def rows(board):
    return {each.name: each.row() for each in board.traces.workers}
