"""Runs the cases of an attack in forked processes under limits: a crash, a hang and a flood of memory are failures.

A case is `ATTACK:SEED:NUMBER`; the same case always gets the same random numbers. An attack is a module of this
package with a function `case(number, rng, folder)`. It returns one word for the verdict and raises if bfcviz failed.
"""

import contextlib
import faulthandler
import json
import os
import random
import resource
import selectors
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

SECONDS = 30  # of one case
MEMORY = 1 << 30  # by which one case may make the process grow
ADDRESS_SPACE = 2 << 30  # of a worker, so that no case can exhaust the machine
LONGEST_TEXT = 3000  # of a failure; a report must fit into one write to a pipe


@dataclass
class Result:
    """What an attack came to."""

    attack: str
    planned: int
    done: int = 0
    verdicts: Counter = field(default_factory=Counter)
    failures: list = field(default_factory=list)  # of (case, why)
    seconds: float = 0.0
    peak: int = 0  # bytes
    slowest: tuple = (0.0, "")  # seconds of processor time, case

    def count(self, case, verdict, why=""):
        self.done += 1
        if why:
            self.failures.append((case, why))
        else:
            self.verdicts[verdict] += 1


class Worker:
    """A forked process that runs some cases in turn and reports each. The parent sees how it ends."""

    def __init__(self, attack, seed, numbers, folder):
        self.attack, self.seed, self.numbers, self.folder = attack, seed, numbers, folder
        self.case, self.rest = None, b""
        folder.mkdir(exist_ok=True)
        (folder / "stderr").touch()  # it may be killed before it opens it
        self.messages, written = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self.messages)
                self._work(written)
            finally:
                os._exit(70)
        os.close(written)

    def _work(self, out):
        _limit(self.folder / "stderr")
        attack = import_module(f"integration.attacks.{self.attack}")
        for number in self.numbers:
            case = f"{self.attack}:{self.seed}:{number}"
            os.write(out, json.dumps({"case": case, "number": number}).encode() + b"\n")
            os.write(out, json.dumps(judge(attack, case, self.folder / "case")).encode() + b"\n")
        os._exit(0)

    def read(self):
        """New reports; None when the process has ended."""
        data = os.read(self.messages, 1 << 16)
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [json.loads(line) for line in lines] if data else None

    def end(self):
        """Why it ended in the middle of a case; empty if it did not."""
        os.close(self.messages)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if status == 0:
            return ""
        said = (self.folder / "stderr").read_text(errors="replace")
        how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        return f"the process ended: {how}\n{said}"[:LONGEST_TEXT]


def _limit(stderr):
    """Bound this worker's memory, and send what is said of a crash to a file."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600), 2)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    faulthandler.enable(2)


def judge(attack, case, folder):
    """Run one case; returns its report."""
    folder.mkdir()
    os.ftruncate(2, 0)
    before = _memory("VmRSS")
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again
    seconds = getattr(attack, "SECONDS", SECONDS)
    faulthandler.dump_traceback_later(seconds, exit=True)
    signal.alarm(2 * seconds)  # for the case that the line before does not work
    report, begun = {"verdict": "", "why": ""}, time.process_time()
    try:
        report["verdict"] = attack.case(int(case.rpartition(":")[2]), random.Random(case), folder)
    except BaseException:  # noqa: BLE001  it is the verdict
        report["why"] = traceback.format_exc(limit=-12)[-LONGEST_TEXT:]
    signal.alarm(0)
    faulthandler.cancel_dump_traceback_later()
    report["seconds"], report["peak"] = time.process_time() - begun, _memory("VmHWM")
    if report["peak"] - before > MEMORY and not report["why"]:
        report["why"] = f"{report['peak'] - before >> 20} MiB of memory were used, more than {MEMORY >> 20}"
    shutil.rmtree(folder, ignore_errors=True)
    return report


def _memory(name):
    """Bytes of this process as the kernel counts them; 0 where it does not say."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) << 10
    return 0


def run(attack, seed, numbers, folder, *, seconds, workers=2):
    """Run the cases with these numbers until all are done or the time is up."""
    import_module(f"integration.attacks.{attack}")  # once for all workers
    result, begun = Result(attack, len(numbers)), time.monotonic()
    with selectors.DefaultSelector() as waiting:

        def start(place, some):
            worker = Worker(attack, seed, some, folder / str(place))
            waiting.register(worker.messages, selectors.EVENT_READ, (place, worker))

        for place in range(min(workers, len(numbers))):
            start(place, numbers[place::workers])
        while waiting.get_map() and (left := begun + seconds - time.monotonic()) > 0:
            for key, _ in waiting.select(min(left, SECONDS)):
                place, worker = key.data
                if (reports := worker.read()) is not None:
                    for report in reports:
                        _take(result, worker, report)
                    continue
                waiting.unregister(key.fd)
                if why := worker.end():
                    result.count(worker.case or f"{attack}: no case began", "", why)
                    shutil.rmtree(worker.folder, ignore_errors=True)
                    if worker.case:
                        start(place, worker.numbers[worker.numbers.index(worker.number) + 1 :])
        for key in list(waiting.get_map().values()):
            os.kill(key.data[1].pid, signal.SIGKILL)
            key.data[1].end()
    result.seconds = time.monotonic() - begun
    return result


def _take(result, worker, report):
    if "case" in report:
        worker.case, worker.number = report["case"], report["number"]
        return
    result.peak = max(result.peak, report["peak"])
    result.slowest = max(result.slowest, (report["seconds"], worker.case))
    result.count(worker.case, report["verdict"], report["why"])
