"""How low plans get, and how soon: `python tests/bench/packing.py [SECONDS]`.

First MiniMalloc's hard instances, each known to fit into 1,048,576 bytes: the greedy plan, when the search first met
that capacity, which it is not told, and the best plan within SECONDS (60) with what is proven. Then a million requests
as in `policy_speed.py`. Times are those of the processor: other programs on the machine do not count.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from minimalloc import CAPACITY, INSTANCES, instance
from policy_speed import training_like

from bfcviz.whatif.planner import pack


def main(seconds=60.0):
    print("| instance | greedy | capacity met after | best | of the proven least |")
    print("|---|---:|---:|---:|---:|")
    for name in INSTANCES:
        begun, heights = time.process_time(), {}

        def report(plan, begun=begun, heights=heights):
            heights.setdefault(plan.height, time.process_time() - begun)
            return True

        plan = pack(instance(name), seconds, report)
        met = [moment for height, moment in heights.items() if height <= CAPACITY]
        when = f"{met[0]:.1f} s" if met else "-"
        print(
            f"| {name} | {next(iter(heights)):,} | {when} | {plan.height:,} | + {100 * plan.excess:.1f} % |",
            flush=True,
        )
    stream = training_like(1_000_000)
    begun = time.process_time()
    plan = pack(stream)
    taken = time.process_time() - begun
    print(f"\n{len(stream):,} requests: {taken:.1f} s, + {100 * plan.excess:.1f} % of the proven least")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
