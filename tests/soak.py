"""Let heaps, threads, readers and recordings work for long while things go wrong: `python tests/soak.py --minutes 60`.

Cases come one after another until the time is over: see tests/integration/attacks/soak.py. Prints a table of the ways
with what they did, how many kills lost nothing, and each failure with its case; `--case soak:0:17` runs one again. Exit
status: 1 if a case failed, else 0. tests/integration/attacks/test_attacks.py runs a short part of it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from attack import report
from integration.attacks import pool
from integration.attacks.soak import WAYS

COLUMNS = ("cases", "heaps", "threads", "events", "lapped", "stops", "kills", "drain kills")
ROW = "{:<10}{:>8}{:>8}{:>9}{:>13}{:>9}{:>8}{:>8}{:>13}"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10, help="how long (default: 10)")
    parser.add_argument("--cases", type=int, default=1 << 30, help="end after so many (default: by the time)")
    parser.add_argument("--seed", default="0", help="of the random numbers")
    parser.add_argument("--workers", type=int, default=2, help="processes at once")
    parser.add_argument("--case", help="run this case again, such as soak:0:17")
    return parser.parse_args()


def main():
    asked = arguments()
    seed, numbers = asked.seed, range(asked.cases)
    if asked.case:
        _, seed, number = asked.case.split(":")
        numbers = [int(number)]
    with tempfile.TemporaryDirectory(prefix="bfcviz-soak-", ignore_cleanup_errors=True) as folder:
        result = pool.run(
            "soak", seed, numbers, Path(folder), seconds=60 * asked.minutes, workers=asked.workers
        )
        result.planned = result.done  # it may end by its time
        for disk in Path(folder).glob("*/case/disk"):  # of a worker that was in the middle of a case
            subprocess.run(["umount", "--lazy", disk], capture_output=True, check=False)
        table(Path(folder))
    return report([result])


def table(folder):
    """What the cases of each way did, together."""
    total = {way: Counter() for way in WAYS}
    for file in folder.glob("*/tally.jsonl"):
        for line in file.read_text().splitlines():
            told = json.loads(line)
            total[told.pop("way")].update({**told, "cases": 1})
    print(ROW.format("way", *COLUMNS))
    for way, counts in total.items():
        print(ROW.format(way, *(f"{counts[name]:,}" for name in COLUMNS)))
    every = sum(total.values(), Counter())
    print(
        f"\n{every['kills']:,} SIGKILLs of a recorded program and {every['drain kills']:,} of its drain, in cases "
        f"that did not fail: all {every['acknowledged']:,} allocations that were acknowledged, with or without a kill, "
        "are in the recordings\n"
    )


if __name__ == "__main__":
    sys.exit(main())
