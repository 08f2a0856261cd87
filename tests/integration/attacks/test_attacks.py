"""A short part of `python tests/attack.py`, and that it sees failures when there are some."""

import re

import pytest
from integration.attacks.soak import WAYS, Growth
from processes import run_python, sized
from shared import ROOT

ATTACK = ROOT / "tests" / "attack.py"
INPUTS = 120  # damaged files, together
INPUT_ATTACKS = {"profiles", "formats", "traces", "folders"}
ATTACKS = INPUT_ATTACKS | {"imports", "interrupts", "kills", "forks", "threads"}

PLANTED = {
    "os.kill(os.getpid(), 11)": "killed by signal 11",
    "signal.pause()": "Timeout",
    "1 / 0": "ZeroDivisionError",
    "bytearray(3 << 30)": "MemoryError",
    "b'x' * (100 << 20)": "MiB of memory were used",
}


@pytest.mark.timeout(200)
def test_a_short_attack():
    done = run_python(ATTACK, "--inputs", INPUTS, "--seconds", 150)
    assert done.returncode == 0, done.stdout
    rows = re.findall(
        r"^(\w+) +(\d+) +(\d+) +(\d+) .*  (.*)$", done.stdout.split("\nformat ")[0], re.MULTILINE
    )
    assert {name for name, *_ in rows} == ATTACKS
    for name, planned, finished, failures, verdicts in rows:
        assert (finished, failures) == (planned, "0")
        assert {"opened", "refused"} <= {*re.findall(r"\d (\w+)", verdicts)} or name not in INPUT_ATTACKS


def test_cases_that_are_left_are_no_success():
    done = run_python(ATTACK, "--only", "folders", "threads", "--inputs", 20_000, "--seconds", 1)
    left = {
        name: (int(missing), int(planned))
        for name, missing, planned in re.findall(
            r"^NOT DONE (\w+): (\d+) of (\d+) cases are left$", done.stdout, re.MULTILINE
        )
    }
    rows = re.findall(r"^(\w+) +(\d+) +(\d+) +0 ", done.stdout, re.MULTILINE)
    assert done.returncode == 2, done.stdout
    assert left == {name: (int(planned) - int(done), int(planned)) for name, planned, done in rows}
    assert left.keys() == {"folders", "threads"}


def test_planted_failures_are_seen(tmp_path):
    """Each with its case; and the cases between them are judged as ever."""
    code = f"""
import os, random, signal, sys, types
from pathlib import Path
from integration.attacks import pool
pool.SECONDS, pool.MEMORY = 3, 32 << 20
planted = {list(PLANTED)!r}
def case(number, rng, folder):
    if number % 2:
        exec(planted[number // 2])
    return "fine"
module = types.ModuleType("integration.attacks.planted")
module.case = case
sys.modules["integration.attacks.planted"] = module
result = pool.run("planted", "0", range(10), Path({str(tmp_path)!r}), seconds=60)
for case, why in result.failures:
    print(case, why.replace("\\n", " "))
print(result.done, dict(result.verdicts))
"""
    *failed, last = run_python("-c", code).stdout.splitlines()
    assert last == "10 {'fine': 5}"
    for number, said in enumerate(PLANTED.values()):
        (line,) = [line for line in failed if line.startswith(f"planted:0:{2 * number + 1} ")]
        assert said in line


@pytest.mark.timeout(200)
def test_a_short_soak():
    each = sized(4, 1)
    done = run_python(ROOT / "tests" / "soak.py", "--minutes", 3, "--cases", each * len(WAYS), "--seed", 7)
    assert done.returncode == 0, done.stdout
    rows = re.findall(r"^(\w+) +(\d+)(?: +[\d,]+){7}$", done.stdout, re.MULTILINE)
    assert rows == [(way, str(each)) for way in WAYS]


def test_growth_is_seen(monkeypatch):
    monkeypatch.setattr(Growth, "FIRST", 1)
    growth = Growth()
    for _ in range(3):
        growth.check()
    with ATTACK.open(), pytest.raises(AssertionError, match="files"):
        growth.check()


def test_a_case_can_be_run_again():
    done = run_python(ATTACK, "--case", "folders:0:3")
    assert re.search(r"^folders +1 +1 +0 .* 1 (opened|refused)$", done.stdout, re.MULTILINE), done.stdout
