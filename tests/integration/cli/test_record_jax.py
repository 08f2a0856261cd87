"""`bfcviz record --jax`: with a stand-in for JAX, and with JAX itself where it is installed."""

import sys
from importlib.util import find_spec

import pytest
from integration.cli.test_record import recording
from shared import ROOT

from bfcviz.events.origin import Status
from bfcviz.events.trace import Trace
from bfcviz.live.jax import GAPS
from bfcviz.model import Model
from bfcviz.model.find_steps import peak

STAND_IN = """
import sys
from unit.live.jax_stand_in import Array, Device, stack
gpu = Device(0, totals={"bytes_in_use": 900})
arrays = [Array(800, stack(41), gpu), Array(1, None, gpu)]
local_devices = lambda: [gpu]
live_arrays = lambda platform: arrays
"""

TRAIN = """
import jax, jax.numpy as jnp

def init():
    return {"w": jnp.ones((256, 512)), "b": jnp.zeros(512)}

def loss(weights, x):
    return jnp.mean(jnp.tanh(x @ weights["w"] + weights["b"]) ** 2)

@jax.jit
def update(weights, moments, x):
    gradients = jax.grad(loss)(weights, x)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradients)
    return jax.tree.map(lambda w, m: w - 0.1 * m, weights, moments), moments

def forward(weights, x):
    return jnp.tanh(x @ weights["w"])

def main():
    weights, x = init(), jnp.ones((64, 256))
    moments = jax.tree.map(jnp.zeros_like, weights)
    for _ in range(5):
        weights, moments = update(weights, moments, x)
    kept = [forward(weights, x) for _ in range(8)]
    jax.block_until_ready(kept)

main()
"""


def held(folder):
    """Who holds how much at the peak."""
    trace = Trace.open(folder)
    model = Model(trace)
    model.seek(peak(trace))
    sizes = {}
    for chunk in model.in_use():
        name = trace.labels.name(chunk["label"])
        sizes[name] = sizes.get(name, 0) + int(chunk["size"])
    return sizes


def test_arrays_are_named_and_known_gaps_are_no_failure(tmp_path):
    (tmp_path / "jax.py").write_text(STAND_IN)
    folder = tmp_path / "run.bfc"
    path = f"{tmp_path}:{ROOT}:{ROOT / 'tests'}"
    words = ("--jax", "--", sys.executable, "-c", "import jax; print('trained')")
    done = recording(*words, folder=folder, env={"PYTHONPATH": path})
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert "observed jax gpu:0 (peak 801 B)" in done.stderr
    assert held(folder) == {"train.py:41 forward": 800, "float32[8]": 1}
    origin = Trace.open(folder).origin
    assert (origin.status, origin.reasons) == (Status.DEGRADED, GAPS.reasons)


@pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")
def test_the_arrays_of_jax_itself_are_held_by_lines_of_the_program(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    folder = tmp_path / "run.bfc"
    words = ("--jax", "--every", "0.002", "--", sys.executable, tmp_path / "train.py")
    done = recording(*words, folder=folder, env={"JAX_PLATFORMS": "cpu"})
    assert done.returncode == 0, done.stderr
    sizes = held(folder)
    named = sum(size for name, size in sizes.items() if name.startswith("train.py:"))
    assert named > 0.99 * sum(sizes.values()) > 0
