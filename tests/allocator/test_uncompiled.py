"""The plain Python modules behave like the compiled ones: a sample of the tests runs again, uncompiled.

The sample holds the tests of modules that are compiled. The tests of threads, forks and leaks stay out: they test C.
"""

import pytest
from processes import COMPILED, run_python
from shared import ROOT

SAMPLE = {
    "allocator": (
        *(
            "introspection",
            "reclaim",
            "sub_allocators",
            "test_bfc.py",
            "test_deferred_merge.py",
            "test_sizes.py",
            "test_defects.py",
            "test_finalizer.py",
        ),
        *("test_interrupts.py", "test_out_of_memory.py", "test_replay.py", "test_allocate_after_free.py"),
        "test_tensorflow_behaviour.py",
    ),
    "events": ("test_labels.py", "test_log.py", "test_log_reader.py", "test_schema.py", "test_trace.py"),
    "model": ("state", "timelines", "seeking"),
    "figures": ("region_map/raster",),
    "formats": ("test_compiled_rules.py",),
    "live": ("common/test_require_compiled.py",),
    "whatif": ("test_new_policy.py",),
}
SLOW = "model/timelines/test_busy_window.py"
"""Opens the bundled runs, which takes a third of the time of all others together."""

CODE = (
    "import sys, pytest; code = pytest.main(sys.argv[1:]); "
    "print('compiled:', any(f'bfcviz.{name}' in sys.modules for name in ('_heap', '_model'))); sys.exit(code)"
)


@pytest.mark.timeout(600)
@pytest.mark.skipif(not COMPILED, reason="the tests themselves run uncompiled")
def test_the_plain_modules_pass_the_same_tests():
    paths = [ROOT / "tests" / package / name for package, names in SAMPLE.items() for name in names]
    result = run_python(
        "-c",
        CODE,
        "-q",
        "-n0",
        "-p",
        "no:cacheprovider",
        f"--rootdir={ROOT}",
        f"--ignore={ROOT / 'tests' / SLOW}",
        *paths,
        plain=True,
        timeout=570,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "compiled: False"
