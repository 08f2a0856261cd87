"""What a reading of JAX's live arrays costs: `python tests/bench/jax_arrays.py`, with JAX installed.

For 100, 1,000 and 10,000 small arrays, in milliseconds: the first reading, which finds all of them new, one that finds
nothing new (the fastest of 20), and one after half of them were replaced.
"""

import time

import jax
import jax.numpy as jnp

from bfcviz.live.jax import observe_jax


def made(count):
    arrays = [jnp.full(8, number, jnp.float32) for number in range(count)]
    jax.block_until_ready(arrays)
    return arrays


def took(work):
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


print("arrays    all new  none new  half replaced")
for count in (100, 1000, 10_000):
    arrays = made(count)
    observed = observe_jax(every_s=1000)
    first = took(observed.settle)
    same = min(took(observed.settle) for _ in range(20))
    arrays = arrays[: count // 2] + made(count // 2)
    replaced = took(observed.settle)
    print(f"{count:6,} {first:10.2f} {same:9.3f} {replaced:14.2f}")
    del arrays
