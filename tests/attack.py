"""Attack bfcviz with damaged files, interrupts, kills, forks and failing memory: `python tests/attack.py`.

Prints a table, and each failure with its case. `--case CASE` runs one again. It runs until all cases are done, or until
`--seconds` are over. Exit status: 1 if a case failed, else 2 if cases are left, else 0.
tests/integration/attacks/test_attacks.py runs a short part of it.
"""

import argparse
import math
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ |= {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OPENBLAS_NUM_THREADS": "1",
}  # neither reserves memory ahead
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from integration.attacks import pool  # noqa: E402

ATTACKS = {  # name -> cases in 100 inputs, share of the time
    "imports": (1, 4),  # first, while bfcviz is not imported
    "profiles": (40, 5),
    "formats": (40, 6),
    "folders": (30, 3),
    "interrupts": (1, 2),
    "kills": (2, 1),
    "forks": (1, 2),
    "threads": (1, 1),
    "traces": (30, 8),  # last: it gets the time that the others left
}
FORMAT_ROW = "{:<12}{:>8}{:>10}{:>10}{:>9}"
ROW = "{:<12}{:>8}{:>10}{:>10}{:>9}{:>9}  {}"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--inputs", type=int, default=20_000, help="damaged files; the other attacks keep their ratio"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        help="end after this time, also if cases are left (default: never)",
    )
    parser.add_argument("--seed", default="0", help="of the random numbers")
    parser.add_argument("--only", choices=ATTACKS, nargs="+", default=list(ATTACKS), help="these attacks")
    parser.add_argument("--case", help="run this case again, such as profiles:0:17")
    parser.add_argument("--workers", type=int, default=2, help="processes at once")
    return parser.parse_args()


def main():
    asked = arguments()
    with tempfile.TemporaryDirectory(prefix="bfcviz-attack-", ignore_cleanup_errors=True) as folder:
        if asked.case:
            attack, seed, number = asked.case.split(":")
            return report([pool.run(attack, seed, [int(number)], Path(folder), seconds=asked.seconds)])
        end, results = time.monotonic() + asked.seconds, []
        chosen = [attack for attack in ATTACKS if attack in asked.only]
        for place, attack in enumerate(chosen):
            share = ATTACKS[attack][1] / sum(ATTACKS[name][1] for name in chosen[place:])
            numbers = range(max(2, asked.inputs * ATTACKS[attack][0] // 100))
            home = Path(folder) / attack
            home.mkdir()
            seconds = (end - time.monotonic()) * share
            results.append(
                pool.run(attack, asked.seed, numbers, home, seconds=seconds, workers=asked.workers)
            )
            print(f"{attack}: {results[-1].done} of {len(numbers)} done", file=sys.stderr)
    return report(results)


def report(results):
    """Print each failure and the tables; returns the exit status."""
    for result in results:
        for case, why in result.failures:
            print(f"FAILED {case}\n{why}\n")
    print(ROW.format("attack", "planned", "done", "failures", "seconds", "peak MiB", "verdicts"))
    for each in results:
        words = Counter()
        for verdict, count in each.verdicts.items():
            words[verdict.split()[0]] += count
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(words.items()))
        numbers = (each.planned, each.done, len(each.failures), f"{each.seconds:.0f}", each.peak >> 20)
        print(ROW.format(each.attack, *numbers, verdicts))
    for each in results:
        if each.attack == "formats":
            by_format(each)
    left = [each for each in results if each.done < each.planned]
    for each in left:
        print(f"NOT DONE {each.attack}: {each.planned - each.done} of {each.planned} cases are left")
    return 1 if any(each.failures for each in results) else 2 if left else 0


def by_format(result):
    """Print how many files of each format were tried, and the slowest case."""
    from integration.attacks.formats import FORMATS, format_of  # noqa: PLC0415  bfcviz is not imported before the first attack

    failed = Counter(format_of(int(case.rpartition(":")[2])) for case, _ in result.failures)
    print("\n" + FORMAT_ROW.format("format", "tried", "opened", "refused", "failed"))
    for name in FORMATS:
        numbers = [result.verdicts[f"{word} {name}"] for word in ("opened", "refused")] + [failed[name]]
        print(FORMAT_ROW.format(name, sum(numbers), *numbers))
    print("slowest: {:.1f} s of processor time, {}".format(*result.slowest))


if __name__ == "__main__":
    sys.exit(main())
