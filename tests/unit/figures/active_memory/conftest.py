"""A busy trace."""

import pytest
from unit.figures.synthetic import busy_trace


@pytest.fixture(scope="module")
def trace():
    return busy_trace()
