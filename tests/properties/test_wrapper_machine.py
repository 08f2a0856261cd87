"""Compositions of wrappers, whatever is done to them."""

import os

from hypothesis import HealthCheck, settings
from properties.wrapper_machine import WrapperMachine

TestWrappers = WrapperMachine.TestCase
TestWrappers.settings = settings(
    max_examples=int(os.environ.get("BFCVIZ_EXAMPLES", "100")),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
