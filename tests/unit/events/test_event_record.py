"""The event record has the same fields for NumPy, C and Cython, compiled or not."""

import ctypes
import re
from pathlib import Path

import numpy as np
from c_code import built, needs_compiler
from shared import ROOT

from bfcviz.events.event_record import RECORD, Event
from bfcviz.events.log import EventLog, Reader
from bfcviz.events.schema import EVENT, Flag, Kind

HEADER = (ROOT / "bfcviz/events/event_record.h").read_text()


PXD = (ROOT / "bfcviz/events/event_record.pxd").read_text()


PROBE = """
#include "bfcviz/events/event_record.h"
static bfc_event record;
#define FIELD(name) offsetof(bfc_event, name), sizeof(record.name), (__typeof__(record.name))-1 < 0
const long record_bytes = sizeof(bfc_event);
const long fields[] = {%s};
"""


def places(dtype):
    """The offset, size and signedness of each field."""
    return [(dtype.fields[name][1], dtype[name].itemsize, dtype[name].kind == "i") for name in dtype.names]


def test_a_record_is_64_bytes_in_c_for_python_and_on_disk():
    assert EVENT.itemsize == RECORD == ctypes.sizeof(Event) == 64


@needs_compiler
def test_every_field_lies_in_c_where_numpy_has_it(tmp_path):
    source = Path(tmp_path, "probe.c")
    source.write_text(PROBE % ", ".join(f"FIELD({name})" for name in EVENT.names))
    library = ctypes.CDLL(str(built(source, tmp_path, "-I", str(ROOT))))
    fields = np.reshape((ctypes.c_long * (3 * len(EVENT.names))).in_dll(library, "fields"), (-1, 3))
    assert [(offset, size, bool(signed)) for offset, size, signed in fields.tolist()] == places(EVENT)
    assert ctypes.c_long.in_dll(library, "record_bytes").value == EVENT.itemsize


def test_cython_is_told_the_same_fields():
    fields = re.findall(r"^        (u?)int(\d+)_t (\w+)$", PXD, re.MULTILINE)
    assert [name for _, _, name in fields] == list(EVENT.names)
    told = [(int(bits) // 8, sign == "") for sign, bits, _ in fields]
    assert told == [(size, signed) for _, size, signed in places(EVENT)]


def test_every_field_lies_uncompiled_where_numpy_has_it():
    fields = [(getattr(Event, name).offset, getattr(Event, name).size) for name in EVENT.names]
    assert fields == [(offset, size) for offset, size, _ in places(EVENT)]


def test_kinds_and_flags_have_one_number_each():
    numbers = {each.name: each.value for each in (*Kind, *Flag)}
    in_c = {name: int(number) for name, number in re.findall(r"BFC_(\w+) = (\d+)", HEADER)}
    assert in_c == numbers
    told = dict(re.findall(r'^        (\w+) "BFC_(\w+)"$', PXD, re.MULTILINE))
    assert {*told} <= {*numbers}
    assert all(name == in_c_name for name, in_c_name in told.items())


def test_what_a_log_is_given_is_read_under_the_same_names():
    log = EventLog(64)
    given = {  # as `put` takes them
        "kind": Kind.ALLOCATE, "chunk": 2**31 + 1, "region": 40_001, "address": 2**63 + 3, "size": 2**62 + 5,
        "requested": 2**61 + 7, "other": 2**30 + 9, "label": 2**29 + 11, "thread": 50_013, "stream": 60_015,
        "bin": -1, "flags": Flag.UPPER, "pool": 7, "by": 33_019,
    }  # fmt: skip
    log.begin_operation(2**40 + 17)
    seq = log.put(*given.values())
    (event,) = Reader(log).read()
    written = {**given, "seq": seq, "time": 2**40 + 17}
    assert {name: int(event[name]) for name in EVENT.names} == written
