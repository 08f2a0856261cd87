"""A ledger without regions."""

import pytest
from events.ledger.read_ledger import Heap


@pytest.fixture
def ledger():
    return Heap()
