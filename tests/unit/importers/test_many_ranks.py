"""Logs of a job of many ranks: which failed, why, and which only lost it or waited for it."""

import json
from time import process_time

import pytest

import bfcviz
from bfcviz import public_functions
from bfcviz.analysis.message_answer import StatedAnswer
from bfcviz.cli import main
from bfcviz.importers.message_reader import read_messages

MANY = 40
FIRST = 17

LABELS = {
    "rank": "[rank{}]: ",
    "srun": "{}: ",
    "srun, aligned": "{:2}: ",
    "mpirun": "[1,{}]<stderr>:",
    "horovod": "[{}]<stderr>:",
}
LOST = (
    "[E1 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=48)",
    "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:3841",
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    "This most likely indicates that another task died; see the other task logs for more details.",
    "socketProgressOpt: Call to recv from 10.0.0.1<45331> failed : Connection reset by peer",
)


def refused(rank, free=1):
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU {rank % 8} has a total capacity "
        f"of 80.00 GiB of which {free}.00 GiB is free. Including non-PyTorch memory, this process has "
        f"{80 - free}.00 GiB memory in use. Of the allocated memory 74.00 GiB is allocated by PyTorch, and 1.00 GiB is "
        "reserved by PyTorch but unallocated."
    )


def log(tells, label="", order=range(MANY)):
    """The lines of all ranks: steps of each, then what each tells."""
    lines = [f"{label.format(rank)}step {step}" for step in range(3) for rank in range(MANY)]
    lines += [f"{label.format(rank)}{line}" for rank in order for line in tells(rank)]
    return "\n".join(lines) + "\n"


def read(text):
    return StatedAnswer.of(*read_messages([text.encode()]))


def lost(rank):
    return [LOST[rank % len(LOST)].format(rank=rank)] * 2


def others():
    return tuple(rank for rank in range(MANY) if rank != FIRST)


FIRST_FAILS = [FIRST, *others()]


@pytest.mark.parametrize("label", LABELS.values(), ids=LABELS)
def test_one_rank_fails_and_the_others_lose_it(label):
    answer = read(log(lambda rank: [refused(rank)] if rank == FIRST else lost(rank), label, FIRST_FAILS))
    (failure,), (soft,) = answer.failures, answer.soft
    assert (failure.judgement.cause, failure.stated.ranks) == ("capacity", (FIRST,))
    assert (soft.stated.message, soft.stated.ranks) == ("peer-lost", others())
    assert "a consequence" in soft.judgement.sentence
    assert answer.to_json()["no_failures"][0]["ranks"] == list(others())


@pytest.mark.parametrize("label", LABELS.values(), ids=LABELS)
def test_all_ranks_fail_at_once(label):
    answer = read(log(lambda rank: [refused(rank, 1 + rank % 3)], label))
    (failure,) = answer.failures
    assert (sorted(failure.stated.ranks), failure.stated.count) == ([*range(MANY)], MANY)
    assert not answer.soft


STREAMS = {
    "kubectl": ("[pod/job-{}/main] ", "job-{}/main"),
    "ray": ("(Worker pid=8{:02}, ip=10.0.0.3) ", "Worker pid=8{:02} ip=10.0.0.3"),
    "gcloud": ("[worker :{}] ", "worker :{}"),
    "pdsh": ("node{:03}: ", "node{:03}"),
    "addresses": ("10.0.0.{}: ", "10.0.0.{}"),
    "compose": ("train-{}  | ", "train-{}"),
    "stern": ("train-{} main ", "train-{}"),
    "jax": ("host {}: ", "host {}"),
}


@pytest.mark.parametrize(("label", "name"), STREAMS.values(), ids=STREAMS)
def test_what_stands_before_the_lines_of_a_process_names_it(label, name):
    ended = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 41 got signal: 15"

    def tells(rank):
        return [refused(rank)] if rank == FIRST else [LOST[1]] if rank % 2 else [ended]

    answer = read(log(tells, label, FIRST_FAILS))
    (failure,), (lost_it, stopped) = answer.failures, answer.soft
    assert (failure.judgement.cause, failure.stated.ranks) == ("capacity", ())
    assert failure.stated.streams == (name.format(FIRST),)
    assert any(f"of {name.format(FIRST)}" in line for line in failure.lines)
    odd = [name.format(rank) for rank in range(MANY) if rank % 2 and rank != FIRST]
    assert (sorted(lost_it.stated.streams), "a consequence" in lost_it.judgement.sentence) == (
        sorted(odd),
        True,
    )
    assert (len(stopped.stated.streams), "ended by SIGTERM" in stopped.judgement.sentence) == (
        MANY // 2,
        True,
    )
    assert answer.to_json()["failures"][0]["streams"] == [name.format(FIRST)]


def test_all_processes_fail_at_once():
    (failure,) = read(log(lambda rank: [refused(rank, 1 + rank % 3)], STREAMS["pdsh"][0])).failures
    assert (len(failure.stated.streams), failure.stated.count) == (MANY, MANY)


def test_the_ranks_of_each_node_are_told_apart():
    steps = "".join(
        f"n{node}: [default{rank}]: step\n" for _ in range(3) for node in range(4) for rank in range(2)
    )
    ends = f"n2: [default1]: {refused(1)}\n" + "".join(
        f"n{node}: [default1]: {LOST[1]}\n" for node in (0, 1, 3)
    )
    answer = read(steps + ends)
    assert [(each.stated.ranks, each.stated.streams) for each in answer.failures] == [((1,), ("n2",))]
    assert [each.stated.streams for each in answer.soft] == [("n0", "n1", "n3")]


@pytest.mark.parametrize(
    "line",
    ["step {0}: loss", "[{0}/9] built", "2026-11-28 10:00:0{0} loss", "[10:00:0{0}] loss", "a{0}: loss"],
)
def test_what_varies_before_lines_without_coming_back_is_no_process(line):
    steps = "".join(f"{line.format(step)}\n" * 3 for step in range(9))
    (failure,) = read(f"{steps}{line.format(9)[: -len('loss')]}{refused(0)}\n").failures
    assert failure.stated.streams == ()


def test_places_in_code_before_lines_are_no_processes():
    (failure,) = read("train.py:12: loss\ntrain.py:40: rate\n" * 5 + f"train.py:12: {refused(0)}\n").failures
    assert failure.stated.streams == ()


def test_a_job_that_was_only_ended_tells_of_no_failure():
    found = read_messages([b"[rank0]: SignalException: Process 41 got signal: 15\n"])
    assert (found.failures, found.soft) == ([], [])


def test_devices_without_ranks_are_one_failure():
    text = "".join(f"{refused(rank, 1 + rank % 3)}\n" for rank in range(8))
    (failure,) = read(text).failures
    assert (sorted(failure.stated.devices), failure.stated.count) == ([*range(8)], 8)
    assert len(read(f"{text}{refused(0, 2)}\n").failures) == 2  # the same device, again


@pytest.mark.parametrize(
    ("told", "cause", "rank"),
    [
        ("srun: error: n4: task 17: Out Of Memory", "host_memory", 17),
        ("srun: error: n4: task 17: Killed", "unknown", 17),
        (
            "mpirun noticed that process rank 17 with PID 0 on node n1 exited on signal 9 (Killed).",
            "unknown",
            17,
        ),
        ("=   RANK 17 PID 11520 RUNNING AT n4\n=   KILLED BY SIGNAL: 9 (Killed)", "unknown", 17),
        (
            (
                "failed (exitcode: -9) local_rank: 1 (pid: 7) of binary: python\nRoot Cause (first observed failure):\n"
                "[0]:\n  time      : 2026-11-20_14:31:02\n  host      : n4\n  rank      : 17 (local_rank: 1)\n"
                "  exitcode  : -9 (pid: 7)"
            ),
            "unknown",
            17,
        ),
    ],
)
def test_a_rank_that_the_system_ended(told, cause, rank):
    text = log(lambda each: [] if each == rank else lost(each), LABELS["rank"])
    (failure,) = read(text + told).failures
    assert (failure.judgement.cause, failure.stated.ranks) == (cause, (rank,))
    assert failure.judgement.second in {None, "host_memory"}


def test_only_consequences_are_told():
    answer = read(log(lambda rank: ["ValueError: bad"] if rank == FIRST else lost(rank), LABELS["rank"]))
    (failure,) = answer.failures
    assert (failure.judgement.cause, failure.stated.ranks) == ("consequence", others())
    assert f"only rank {FIRST} did not tell so" in failure.judgement.sentence


def test_what_came_before_is_no_consequence():
    order = [*others(), FIRST]
    answer = read(log(lambda rank: [refused(rank)] if rank == FIRST else lost(rank), LABELS["rank"], order))
    (soft,) = answer.soft
    assert "a consequence" not in soft.judgement.sentence
    assert "before the first failure" in soft.judgement.sentence


def test_a_rank_that_failed_and_then_lost_the_others_counts_once():
    answer = read(f"[rank3]: {refused(3)}\n[rank3]: {LOST[1]}\n")
    assert [failure.stated.ranks for failure in answer.failures] == [(3,)]
    assert not answer.soft


@pytest.mark.parametrize("text", ["508: {}\n", "1: step\n2: step\n3: {}\n", "12: {}\n12: x\n"])
def test_numbers_before_lines_that_are_no_ranks(text):
    (failure,) = read(text.format(refused(0))).failures
    assert failure.stated.ranks == ()


@pytest.fixture
def folder(tmp_path):
    def make(tells, **files):
        for rank in range(MANY):
            (tmp_path / f"rank_{rank:03}.log").write_text("\n".join(["step 1", *tells(rank)]) + "\n")
        for name, text in files.items():
            (tmp_path / name.replace("_", ".")).write_text(text)
        return tmp_path

    return make


def test_a_folder_names_the_rank_that_failed(folder):
    ranks = bfcviz.open_all(
        folder(lambda rank: [refused(rank)] if rank == FIRST else lost(rank), notes_txt="x")
    )
    assert (ranks.worst.place.rank, ranks.worst.verdict) == (FIRST, "capacity")
    assert f"1 of {MANY} ranks" in ranks.headline
    failure, consequence = ranks.failures
    assert (failure.ranks, len(consequence.ranks)) == ((f"rank {FIRST}",), MANY - 1)
    assert {rank.verdict for rank in ranks.ranks[1:]} == {"consequence"}
    assert ranks.others == 1
    assert len(ranks.rows) == 2


@pytest.mark.parametrize("last", ["step 2", "ValueError: bad shard"])
def test_a_folder_names_the_log_without_a_message(folder, last, capsys):
    ranks = bfcviz.open_all(folder(lambda rank: [last] if rank == FIRST else lost(rank)))
    assert not any(rank.has_failed for rank in ranks.ranks)
    (silent,) = (rank for rank in ranks.ranks if not rank.failures)
    assert (silent.place.rank, silent.last_line) == (FIRST, last)
    assert any(line.startswith(f"rank {FIRST}: ") and line.endswith(last) for line in ranks.failure_lines)


def test_a_silent_log_is_told_by_its_error_and_not_by_what_follows_it(folder):
    error = "RuntimeError: CUDA error: misaligned address"
    after = ["Stack reported may be wrong.", "For debugging set CUDA_LAUNCH_BLOCKING=1", ""]
    ranks = bfcviz.open_all(
        folder(
            lambda rank: (
                ["ValueError: far above", *["step"] * 50, f"[rank{FIRST}]: {error}", *after]
                if rank == FIRST
                else lost(rank)
            )
        )
    )
    assert any(line.endswith(f"its log ends with: [rank{FIRST}]: {error}") for line in ranks.failure_lines)


def test_a_silent_rank_of_another_node_is_kept(tmp_path):
    for name, line in (
        ("node1/rank_0", "step 1"),
        ("node2/rank_0", lost(0)[0]),
        ("node2/rank_1", lost(1)[0]),
    ):
        path = tmp_path / f"{name}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{line}\n")
    assert any(
        line.startswith("rank 0 on node1: no message") for line in bfcviz.open_all(tmp_path).failure_lines
    )


def test_the_log_of_the_job_tells_of_a_silent_rank(folder):
    told = f"slurmstepd: error: Detected 1 oom_kill event in StepId=8.0.\nsrun: n4: task {FIRST}: Out Of Memory\n"
    path = folder(lambda rank: [] if rank == FIRST else lost(rank))
    (path / "slurm-8.out").write_text(told)
    ranks = bfcviz.open_all(path)
    assert (ranks.worst.place.rank, ranks.worst.verdict, len(ranks.ranks)) == (FIRST, "host_memory", MANY)
    assert {rank.place.host for rank in ranks.ranks} == {""}


def test_numbers_of_lines_are_no_ranks_and_take_no_long_time():
    lines = (f"{number}: {LOST[0].format(rank=0)}"[:110] for number in range(6000))
    text = "\n".join(line.replace("[Rank 0] ", "") for line in lines)
    began = process_time()
    (found,) = read_messages([text.encode()]).failures
    assert (found.message, found.ranks) == ("peer-lost", ())
    assert process_time() - began < 1.5


def test_each_log_with_a_message_is_read_once(folder, monkeypatch):
    path = folder(lambda rank: [refused(rank)] if rank == FIRST else lost(rank))
    monkeypatch.setattr(public_functions, "read_message_file", None)
    assert bfcviz.open_all(path).worst.place.rank == FIRST


STAMPS = {
    "logger": "2031-02-03 04:{:02}:05,250 [ERROR] {}",
    "Kubernetes, text": "2031-02-03T04:{:02}:05.250000000Z stderr F {}",
    "Kubernetes, JSON": '{{"log":"{1}\\n","stream":"stderr","time":"2031-02-03T04:{0:02}:05.25Z"}}',
    "JAX": "E0203 04:{:02}:05.250000   77 x.cc:1] {}",
    "Slurm": "[2031-02-03T04:{:02}:05.250] {}",
    "before": "2031/02/03 04:{:02}:05.250 step\nTraceback (most recent call last):\n{}",
}
"""Each with the minute and the message."""


def first_lines(ranks):
    return [line for line in ranks.failure_lines if "failed first" in line]


@pytest.mark.parametrize("stamp", STAMPS)
def test_the_rank_that_failed_first_by_the_times_in_the_logs(folder, stamp):
    minutes = {30: 9, FIRST: 7, 4: 12}

    def tells(rank):
        return (
            [STAMPS[stamp].format(minutes[rank], refused(rank, free=rank % 3))]
            if rank in minutes
            else lost(rank)
        )

    ranks = bfcviz.open_all(folder(tells))
    assert [rank.place.rank for rank in ranks.ranks[:3]] == [FIRST, 30, 4]
    (line,) = first_lines(ranks)
    assert line.startswith(f"rank {FIRST} failed first, 120 s before rank 30")
    assert line.endswith("by the last time before it in each log") is (stamp == "before")


@pytest.mark.parametrize("stamp", ["logger", "before"])
def test_json_says_who_failed_first_whose_failure_is_a_consequence_and_which_log_just_stops(
    folder, stamp, capsys
):
    minutes, stops = {30: 9, FIRST: 7}, 5

    def tells(rank):
        if rank in minutes:
            return [STAMPS[stamp].format(minutes[rank], refused(rank))]
        return ["step 2 lo"] if rank == stops else lost(rank)

    path = folder(tells)
    assert main(["why", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    times_from = "log" if stamp == "logger" else "line_before"
    expected = {"rank": f"rank {FIRST}", "next": "rank 30", "seconds": 120.0, "times_from": times_from}
    assert found["first_to_fail"] == expected
    assert (found["ranks_that_failed"], found["ranks_that_lacked_memory"]) == (2, 2)
    ranks = {each["rank"]: each for each in found["ranks"]}
    assert {number for number, each in ranks.items() if each["failed_requests"]} == set(minutes)
    assert {number for number, each in ranks.items() if not each["is_consequence"]} == {*minutes, stops}
    assert {number: each["log_ends_with"] for number, each in ranks.items() if each["log_ends_with"]} == {
        stops: "step 2 lo"
    }
    (consequence,) = (each for each in found["shared_failures"] if each["is_consequence"])
    assert len(consequence["ranks"]) == MANY - 3
    (line,) = (each for each in bfcviz.open_all(path).failure_lines if each.startswith(f"rank {stops}: "))
    assert line.endswith("step 2 lo")


def test_many_logs_without_a_message_beside_a_failure_are_one_line(folder):
    ranks = bfcviz.open_all(folder(lambda rank: [refused(rank)] if rank == FIRST else ["step 2"]))
    assert len(ranks.failure_lines) == 2
    assert ranks.to_json()["first_to_fail"] is None


@pytest.mark.parametrize(
    "others",
    [
        "{1}",
        "2031-02-03 04:07:05,250 {1}",
        "E0203 04:09:05.250000   77 x.cc:1] {1}",
        "2031-02-39 01:01:01 {1}",
    ],
)
def test_no_rank_failed_first_where_the_logs_do_not_say_so(folder, others):
    stamps = {FIRST: STAMPS["logger"], 30: others}
    ranks = bfcviz.open_all(
        folder(lambda rank: [stamps[rank].format(7, refused(rank))] if rank in stamps else lost(rank))
    )
    assert sum(rank.has_failed for rank in ranks.ranks) == 2
    assert first_lines(ranks) == []


def test_hours_between_two_failures_are_told_in_whole_seconds(folder):
    stamps = {FIRST: "2031-02-03 04:05:06 {}", 30: "2031-02-03 07:05:07 {}"}
    ranks = bfcviz.open_all(
        folder(lambda rank: [stamps[rank].format(refused(rank))] if rank in stamps else lost(rank))
    )
    assert first_lines(ranks) == [f"rank {FIRST} failed first, 10,801 s before rank 30"]
