"""A ledger without regions."""

import pytest
from unit.events.ledger.read_ledger import Heap


@pytest.fixture
def ledger():
    return Heap()
