"""Any reports in any order: the ledger's chunks tile its regions, and its events lead the model there and back."""

import os

from hypothesis import settings
from properties.ledger_machine import LedgerMachine

EXAMPLES = int(os.environ.get("BFCVIZ_EXAMPLES", "100"))

TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)
