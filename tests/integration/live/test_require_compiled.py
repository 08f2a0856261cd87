"""Without the compiled build all modules of `bfcviz.live` can be imported, and labels work."""

from processes import run_code

PLAIN = """
import importlib, pkgutil, sys
import bfcviz, bfcviz.live
from bfcviz.live import labels_and_marks as labels
from bfcviz.live import numpy as numpy_api
for module in pkgutil.walk_packages(bfcviz.live.__path__, "bfcviz.live."):
    if "startup" not in module.name:
        importlib.import_module(module.name)
before = numpy_api.get_handler()
try:
    bfcviz.serve_numpy("1MiB")
except bfcviz.BfcvizError as error:
    print(type(error).__name__, numpy_api.get_handler() is before)
with labels.label("encoder"):
    print(labels.number_in(bfcviz.events.label_table.Labels()))
print(any(name.startswith("bfcviz._live") for name in sys.modules))
"""


def test_the_plain_modules_can_all_be_imported():
    assert run_code(PLAIN, plain=True).splitlines() == ["LiveError True", "1", "False"]
