"""Ctrl-C at any instruction while a label is interned: numbers, names, details and the file agree."""

import signal
from io import FileIO
from itertools import count

import pytest
from interrupts import interrupted

from bfcviz.events import label_table as labels_module
from bfcviz.events.label_table import Label, Labels

ROWS = [(f"op{number}", {"stack": f"train.py:{number}"} if number % 2 else {}) for number in range(6)]
WITH = ("intern", "append_to", "add_line", "add_next_lines")


def read(path):
    again = Labels()
    for line in path.read_bytes().splitlines():
        again.add_line(line)
    return [again[number] for number in range(len(again))]


def check(labels, rows):
    """Each row has one number, which gives its name and details."""
    numbers = [labels.intern(name, **details) for name, details in rows]
    assert [labels[number] for number in numbers] == [Label(*row) for row in rows]
    assert [labels.name(number) for number in numbers] == [name for name, _ in rows]
    assert sorted(numbers) == list(range(1, len(labels)))  # none twice, none for nothing


def test_a_label_is_interned_as_a_whole_or_not_at_all(tmp_path):
    for at in count(1):
        labels = Labels()
        with FileIO(tmp_path / f"{at}.jsonl", "wb") as file:
            labels.append_to(file)
            labels.intern(*ROWS[0][:1])
            more = interrupted(
                at, lambda labels=labels: labels.intern(ROWS[1][0], **ROWS[1][1]), labels_module, guarded=WITH
            )
            check(labels, ROWS[::-1])  # others first
            labels.append_to(None)
        assert read(tmp_path / f"{at}.jsonl") == [labels[number] for number in range(len(labels))]
        if not more:
            break
    assert at > 50


def test_a_table_goes_to_a_file_as_a_whole_or_not_at_all(tmp_path):
    for at in count(1):
        labels = Labels()
        check(labels, ROWS[:3])
        with FileIO(tmp_path / f"{at}.jsonl", "wb") as file:
            more = interrupted(
                at, lambda labels=labels, file=file: labels.append_to(file), labels_module, guarded=WITH
            )
            if more:
                labels.append_to(file)  # again: what is there is written over
            check(labels, ROWS)
        assert read(tmp_path / f"{at}.jsonl") == [labels[number] for number in range(len(labels))]
        if not more:
            break
    assert at > 50


def written(folder):
    """Labels, and the lines of their file."""
    labels = Labels()
    with FileIO(folder / "labels.jsonl", "wb") as file:
        labels.append_to(file)
        check(labels, ROWS)
    return labels, (folder / "labels.jsonl").read_bytes().splitlines()


def test_a_reader_that_is_interrupted_takes_the_line_again(tmp_path):
    labels, lines = written(tmp_path)
    for at in count(1):
        again = Labels()
        more = False
        for line in lines:
            if interrupted(
                at, lambda again=again, line=line: again.add_line(line), labels_module, guarded=WITH
            ):
                more = True
                again.add_line(line)
        assert [again[number] for number in range(len(again))] == [labels[n] for n in range(len(labels))]
        if not more:
            break
    assert at > 20


def test_a_reader_that_is_interrupted_takes_all_lines_again(tmp_path):
    labels, lines = written(tmp_path)
    for at in count(1):
        again = Labels()
        more = interrupted(at, lambda again=again: again.add_next_lines(lines), labels_module, guarded=WITH)
        if more and not again.add_next_lines(lines):
            for line in lines:
                again.add_line(line)
        assert [again[number] for number in range(len(again))] == [labels[n] for n in range(len(labels))]
        if not more:
            break
    assert at > 10


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_signals_that_come_at_any_moment_leave_the_names_right(tmp_path):
    def interrupt(number, frame):  # only inside: the test's own books are no matter here
        if frame is not None and frame.f_code.co_filename == labels_module.__file__:
            raise KeyboardInterrupt

    labels = Labels()
    came, known = 0, {}
    before = signal.signal(signal.SIGALRM, interrupt)
    file = FileIO(tmp_path / "labels.jsonl", "wb")
    labels.append_to(file)
    signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
    try:
        for number in range(200_000):
            try:
                known[labels.intern(f"op{number}", stack=str(number))] = str(number)
            except KeyboardInterrupt:
                came += 1
            if came == 50:
                break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    labels.intern("the next")  # finishes one that was interrupted as the last
    labels.append_to(None)
    file.close()
    assert came > 5
    assert 0 not in known
    assert all(labels[n] == (f"op{text}", {"stack": text}) for n, text in known.items())
    assert read(tmp_path / "labels.jsonl") == [labels[number] for number in range(len(labels))]
