"""Everything that can be done to a heap, in any order, against the oracle and the model."""

import os

from hypothesis import HealthCheck, settings
from properties.heap_machine import HeapMachine

EXAMPLES = int(os.environ.get("BFCVIZ_EXAMPLES", "100"))

TestHeap = HeapMachine.TestCase
TestHeap.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
