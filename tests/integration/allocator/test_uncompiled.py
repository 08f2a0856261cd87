"""The plain Python modules behave like the compiled ones: a sample of the tests runs again, uncompiled.

The sample holds the tests of modules that are compiled. The tests of threads, forks and leaks stay out: they test C.
So do those of TensorFlow's behaviour: `properties/test_heap_uncompiled.py` and `packaging/test_wheel.py` hold the plain
heap against the golden traces.
"""

import pytest
from processes import COMPILED, run_python
from shared import ROOT

SAMPLE = {
    "allocator": (
        *("test_sub_allocators.py", "test_cuda.py", "test_cuda_driver.py", "test_virtual_memory.py"),
        *("test_bfc_allocator.py", "test_queries.py", "test_page_ages.py", "test_trimming.py"),
        *("test_deferred_merge.py", "test_sizes.py", "test_defects.py", "test_finalizer.py"),
        *("test_interrupts.py", "test_out_of_memory.py", "test_replay.py", "test_allocate_after_free.py"),
    ),
    "events": ("test_log.py", "test_trace.py", "storage/test_blocks.py"),
    "model": (
        *("test_model.py", "test_consistency.py", "test_array_access.py", "test_timelines.py"),
        "test_keyframes.py",
    ),
    "figures": ("test_map_cells.py", "test_map_image.py"),
    "formats": ("test_compiled_rules.py",),
    "live": ("test_require_compiled.py",),
    "whatif": ("test_new_policy.py",),
}
CODE = (
    "import sys, pytest; code = pytest.main(sys.argv[1:]); "
    "print('compiled:', any(f'bfcviz.{name}' in sys.modules for name in ('_heap', '_model'))); sys.exit(code)"
)


@pytest.mark.timeout(600)
@pytest.mark.skipif(not COMPILED, reason="the tests themselves run uncompiled")
def test_the_plain_modules_pass_the_same_tests():
    paths = [ROOT / "tests" / "unit" / package / name for package, names in SAMPLE.items() for name in names]
    result = run_python(
        "-c",
        CODE,
        "-q",
        "-n0",
        "-p",
        "no:cacheprovider",
        f"--rootdir={ROOT}",
        *paths,
        plain=True,
        timeout=570,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "compiled: False"
