"""PickleReader: every protocol and value, and nothing else; damaged and malicious pickles give one FileError."""

import io
import os
import pickle
import pickletools
import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared import ROOT

from bfcviz.errors import FileError
from bfcviz.importers.torch import pickle_opcodes
from bfcviz.importers.torch.allocation_history import FrameStack, HistoryRows, TraceRange
from bfcviz.importers.torch.pickle_reader import PickleReader

FRAME = {"filename": "a.py", "line": 3, "name": "forward"}


def read(data, rows=None):
    return PickleReader("file", data, HistoryRows() if rows is None else rows).read()


def entry(**more):
    return {"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "frames": [FRAME], **more}


def test_the_opcodes_are_those_of_pickle():
    declared = (ROOT / "bfcviz/importers/torch/pickle_opcodes.pxd").read_text()
    numbers = {name: int(number, 0) for name, number in re.findall(r"(\w+) = (0x\w+)", declared)}
    here = {name: getattr(pickle_opcodes, name) for name in numbers}
    assert numbers == here == {name: getattr(pickle, name)[0] for name in numbers}


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 127), (1 << 127) - 1) | st.text() | st.binary()
    | st.floats(allow_nan=False) | st.frozensets(st.integers() .filter(lambda n: abs(n) < 1 << 100) | st.text()),
    lambda values: st.lists(values) | st.tuples(values, values) | st.dictionaries(st.text(), values),
    max_leaves=20,
)  # fmt: skip


@given(plain)
def test_plain_values_of_every_protocol(value):
    for protocol in range(6):
        data = pickle.dumps(value, protocol)
        if any(op.name in ("GLOBAL", "REDUCE") for op, *_ in pickletools.genops(data)):
            # bytes and sets, in protocols that have no opcode for them
            with pytest.raises(FileError):
                read(data)
        else:
            assert read(data) == value or "action" in str(value)


@pytest.mark.parametrize("protocol", range(6))
def test_long_containers_come_in_batches(protocol):
    numbers, table = list(range(3001)), {str(number): [number] for number in range(2001)}
    assert read(pickle.dumps([numbers, table, numbers], protocol)) == [numbers, table, numbers]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("count", [1, 2, 999, 1000, 1001, 2000])
def test_entries_become_rows(protocol, count):
    rows, stack = HistoryRows(), [FRAME, {**FRAME, "line": 4}]
    traces = [[entry(addr=number, frames=stack) for number in range(count)], [], [entry(frames=list(stack))]]
    value = read(pickle.dumps({"device_traces": traces}, protocol), rows)
    assert value == {"device_traces": [TraceRange(0, count), [], TraceRange(count, count + 1)]}
    assert rows.address.tolist() == [*range(count), 4096]
    assert set(rows.source) == {1}
    frames = rows.stacks[rows.sources[1].stack]
    assert [(frame.filename, frame.line, frame.name) for frame in frames] == [
        ("a.py", 3, "forward"),
        ("a.py", 4, "forward"),
    ]


def test_equal_stacks_are_one():
    rows = HistoryRows()
    blocks = [{"frames": [dict(FRAME)]}, {"frames": [FRAME, FRAME]}, {"frames": [FRAME]}]
    stacks = [block["frames"] for block in read(pickle.dumps(blocks), rows)]
    assert all(type(stack) is FrameStack for stack in stacks)
    assert [stack.number for stack in stacks] == [1, 2, 1]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("length", [1, 2, 40, 999, 1000, 1001])
def test_a_stack_that_comes_again_is_the_same(length, protocol):
    frames, rows = [{**FRAME, "line": line} for line in range(1, length + 1)], HistoryRows()
    one, other = read(
        pickle.dumps([[list(frames) for _ in range(50)], [*frames, *frames[:1]]], protocol), rows
    )
    assert one == [one[0]] * 50
    assert [len(stack) for stack in rows.stacks] == [0, length, length + 1]
    assert [one[0].number, other.number] == [1, 2]


def frame_at(slot, line):
    """A frame, remembered at a place of the memo."""
    keys = (b"\x8c\x08filename\x8c\x01f", b"\x8c\x04lineK" + bytes([line]), b"\x8c\x04name\x8c\x01n")
    return b"}q" + bytes([slot]) + b"(" + b"".join(keys) + b"u"


def test_the_same_references_are_another_stack_after_the_memo_changed():
    again = b"](h\x01h\x02e"
    first = b"](" + frame_at(1, 10) + frame_at(2, 20) + b"e"
    changed = b"](" + frame_at(2, 30) + b"e"
    rows = HistoryRows()
    stacks = read(b"\x80\x02](" + first + again + again + changed + again + again + b"e.", rows)
    lines = [[frame.line for frame in rows.stacks[stack.number]] for stack in stacks]
    assert lines == [[10, 20]] * 3 + [[30]] + [[10, 30]] * 2


# -- what is refused ------------------------------------------------------------------------------------------------


class Reduced:
    def __reduce__(self):
        return os.system, ("echo attacked > /tmp/attacked",)


class Built:
    pass


def built():
    made = Built()
    made.x = 1
    return made


class Persistent(pickle.Pickler):
    def persistent_id(self, value):
        return "storage" if value == "here" else None


def persistent(protocol):
    file = io.BytesIO()
    Persistent(file, protocol).dump(["here"])
    return file.getvalue()


MALICIOUS = {
    "global": b"cos\nsystem\n(S'id'\ntR.",
    "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.",
    "inst": b"(S'id'\nios\nsystem\n.",
    "obj": b"\x80\x02(cos\nsystem\nU\x02ido.",
    "reduce": b"\x80\x02K\x01)R.",
    "build": b"\x80\x02}}b.",
    "newobj": b"\x80\x02K\x01)\x81.",
    "newobj_ex": b"\x80\x04K\x01)}\x92.",
    "ext1": b"\x80\x02\x82\x01.",
    "ext2": b"\x80\x02\x83\x01\x00.",
    "ext4": b"\x80\x02\x84\x01\x00\x00\x00.",
    "persid": b"Pname\n.",
    "binpersid": b"\x80\x02U\x01aQ.",
    "next buffer": b"\x80\x05\x97.",
    "readonly buffer": b"\x80\x05K\x01\x98.",
    "bytearray": pickle.dumps(bytearray(b"12"), 5),
    "pop": b"\x80\x02K\x01K\x020.",
    "dup": b"\x80\x02K\x012.",
    "no opcode": b"\x80\x04\xff.",
    "protocol 6": b"\x80\x06N.",
    **{f"os.system, protocol {p}": pickle.dumps(Reduced(), p) for p in range(6)},
    **{f"an object, protocol {p}": pickle.dumps(built(), p) for p in range(6)},
    **{f"a persistent id, protocol {p}": persistent(p) for p in range(6)},
    "a list that holds itself": b"\x80\x02]q\x00h\x00a.",
    "a dict that holds itself": b"\x80\x02}q\x00U\x01ah\x00s.",
    "a tuple that holds itself": b"\x80\x02]q\x00(h\x00tq\x01h\x00h\x01a.",
    "a list that changes later": b"\x80\x02]q\x00]h\x00ah\x00K\x01a.",
    "an entry twice": b"\x80\x02](}q\x00(U\x06actionU\x05allocuh\x00e.",
    "an entry outside of a list": pickle.dumps({"a": entry()}),
    "an entry in a tuple": pickle.dumps((entry(),)),
    "an entry among numbers": pickle.dumps([entry(), 1]),
    "a key that is no text": pickle.dumps({1: 2}),
    "a set of tuples": pickle.dumps({(1, 2)}),
    "a large set": pickle.dumps(set(range(2000))),
    "a number of 17 bytes": pickle.dumps(1 << 130),
    "a number of 2 GB": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "a text of 2^60 bytes": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b"a.",
    "a frame of 2^60 bytes": b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"N.",
    "a memo of 2^32 places": b"\x80\x02Nr\xff\xff\xff\xff.",
    "a place that is not in the memo": b"\x80\x02h\x00.",
    "a place below zero": b"g-1\n.",
    "nested lists": b"(" * 100_000 + b"." ,
    "an end without a begin": b"\x80\x02e.",
    "items for no list": b"\x80\x02K\x01(K\x02e.",
    "items behind a mark": b"\x80\x02](K\x01a.",
    "nothing": b"\x80\x02.",
    "two values": b"\x80\x02K\x01K\x02.",
    "a dict with half a pair": b"\x80\x02}(U\x01au.",
    "a text without quotes": b"Sabc\n.",
    "a word for a number": b"Iabc\n.",
    "a line of a frame that is text": pickle.dumps([{**FRAME, "line": "3"}]),
    "a frame among numbers": pickle.dumps([FRAME, 1]),
    "an address below zero": pickle.dumps([entry(addr=-1)]),
    "an address that is text": pickle.dumps([entry(addr="here")]),
    "an action that is a number": pickle.dumps([entry(action=3)]),
}  # fmt: skip


@pytest.mark.parametrize("name", MALICIOUS)
def test_nothing_else_is_read(name):
    with pytest.raises(FileError) as raised:
        read(MALICIOUS[name])
    assert re.match(r"byte [\d,]+", raised.value.place)


def test_an_error_names_the_opcode_and_its_place():
    with pytest.raises(FileError, match=r"file: byte 2: holds GLOBAL, an instruction that can .* run code"):
        read(b"\x80\x02cos\nsystem\n.")


def test_lists_that_share_lists_are_not_copied():
    value = []
    for _ in range(60):
        value = [value] * 10  # 10^60 lists, if they were written out
    assert read(pickle.dumps(value)) is not None


# -- files that are cut off -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", range(6))
def test_a_file_that_is_cut_off_gives_what_is_whole(protocol):
    segments = [{"address": 1}]
    value = {"segments": segments, "device_traces": [[entry(addr=n) for n in range(1500)], [entry()]]}
    data, seen = pickle.dumps(value, protocol), set()
    stops = {*range(3, 80), *range(3, len(data), len(data) // 15), len(data) - 1}
    for stop in sorted(stops):
        reader = PickleReader("file", data[:stop], HistoryRows())
        found = reader.read()
        assert reader.cut == f"the file is cut off at byte {stop:,}"
        assert found.get("segments", segments) == segments
        seen.add(str(found.get("device_traces")))
    assert {"None", "[]", str([TraceRange(0, 1500), TraceRange(1500, 1501)])} <= seen
    assert len(seen) <= 4
