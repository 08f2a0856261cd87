"""JAX's variables give the same options."""

import pytest

from bfcviz.devices import jax_settings, simulate_gpus
from bfcviz.errors import SettingError
from bfcviz.units import GiB


def limits(settings):
    return [each.memory_limit for each in settings.plan() if each.name.device_type == "GPU"]


@pytest.mark.parametrize(
    ("variables", "limit", "growth"),
    [
        ({}, 12 * GiB, False),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, 12 * GiB, True),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "0"}, 12 * GiB, True),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, 12 * GiB, False),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": ".50"}, 8 * GiB, False),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.25", "XLA_PYTHON_CLIENT_ALLOCATOR": "BFC"}, 4 * GiB, False),
        ({"XLA_CLIENT_MEM_FRACTION": ".50"}, 8 * GiB, False),
        ({"XLA_CLIENT_MEM_FRACTION": ".50", "XLA_PYTHON_CLIENT_MEM_FRACTION": ""}, 8 * GiB, False),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "2", "TF_FORCE_UNIFIED_MEMORY": "1"}, 32 * GiB, False),
        ({"TF_FORCE_GPU_ALLOW_GROWTH": "true"}, 12 * GiB, False),  # TensorFlow's, not JAX's
    ],
)
def test_variables_of_jax_are_the_same_options(variables, limit, growth):
    settings = jax_settings(simulate_gpus([16 * GiB]), variables)
    (planned,) = settings.plan()[1:]
    assert (planned.memory_limit, planned.options.allow_growth) == (limit, growth)
    assert planned.unified is ("TF_FORCE_UNIFIED_MEMORY" in variables)
    name = (
        "XLA_CLIENT_MEM_FRACTION"
        if "XLA_CLIENT_MEM_FRACTION" in variables
        else "XLA_PYTHON_CLIENT_MEM_FRACTION"
    )
    assert f"{name} is" in settings.explain()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "half", "above 0"),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "0", "above 0"),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "nan", "above 0"),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "1.5", "TF_FORCE_UNIFIED_MEMORY"),
        ("XLA_PYTHON_CLIENT_ALLOCATOR", "platform", "'platform'"),
        ("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async", "driver"),
        ("XLA_PYTHON_CLIENT_ALLOCATOR", "best", "'default', 'bfc'"),
    ],
)
def test_variables_that_jax_refuses_or_that_have_no_bfc_heap_are_refused(name, value, why):
    with pytest.raises(SettingError, match=why):
        jax_settings(simulate_gpus([16 * GiB]), {name: value})


def test_both_names_of_the_share_are_refused_as_by_jax():
    both = {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".5", "XLA_CLIENT_MEM_FRACTION": ".5"}
    with pytest.raises(SettingError, match="together"):
        jax_settings(simulate_gpus([16 * GiB]), both)


def test_the_share_of_jax_is_what_xla_logs():
    # "XLA backend allocating 3825205248 bytes on device 0 for BFCAllocator" on an A100 MIG 1g.5gb
    assert limits(jax_settings(simulate_gpus([5_100_273_664]), {})) == [3_825_205_248]


def test_jax_settings_are_the_process_s_by_default(monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", ".25")
    assert limits(jax_settings(simulate_gpus([16 * GiB]))) == [4 * GiB]
