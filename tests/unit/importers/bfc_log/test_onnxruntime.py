"""ONNX Runtime's arena prints its chunks as TensorFlow's allocator does: its log opens as a heap."""

import bfcviz
from bfcviz.analysis.heap_settings import Family
from bfcviz.importers.messages import read_message_file
from bfcviz.model import Model

MIB = 1 << 20
BEFORE = "2023-06-12 07:17:51.{:09d} [I:onnxruntime:Default, bfc_arena.cc:{} DumpMemoryLog] "


def log(chunks, requested):
    """As `BFCArena::AllocateRawInternal` and `DumpMemoryLog` write it (onnxruntime/core/framework/bfc_arena.cc).

    Args:
        chunks: address, size, whether in use.
    """
    lines = [
        (
            "[E:onnxruntime:Default, bfc_arena.cc:300 AllocateRawInternal] BFC Arena ran out of memory trying to "
            f"allocate {requested}.  Current allocation summary follows."
        ),
        "Allocator:Cuda",
        "Bin size: Chunks in_use/total (if not zero). Allocated bytes in_use/total. Requested bytes.",
        "1048576: Chunks 1/2. Bytes 3145728/5242880. Requested 3145000.",
        "Diff between in-use and requested bytes is 728",
        f"Bin for {requested} bytes has max bytes of 4194304, Chunk State: ",
        "Overall chunks summary:",
        *(
            f"{'  Chunk' if used else '  Free '} at {address:#x} of size {size}"
            for address, size, used in chunks
        ),
        "Summary of in-use chunks by size: ",
        "  1 chunks of size 3145728. Total 3145728",
        "Sum Total of in-use chunks: 3145728",
        (
            "Stats: \nLimit:                 5242880\nInUse:                 3145728\nTotalAllocated:        5242880\n"
            "MaxInUse:              3145728\nNumAllocs:                   7\nMaxAllocSize:          3145728\n"
        ),
    ]
    text = [BEFORE.format(number, 400 + number) + line for number, line in enumerate(lines)]
    text[0] = text[0].split("[I:")[0] + lines[0]
    return "\n".join(text) + "\n"


def test_a_log_of_the_arena_opens_as_a_heap(tmp_path):
    base = 0x7FA4C6800000
    chunks = [(base, MIB, False), (base + MIB, 3 * MIB, True), (base + 4 * MIB, MIB, False)]
    path = tmp_path / "onnx.log"
    path.write_text(log(chunks, 2 * MIB - 100))
    assert read_message_file(path) is None
    trace = bfcviz.open(path)
    model = Model(trace)
    model.seek(len(trace) - 1)
    assert [(int(row["address"]), int(row["size"]), bool(row["in_use"])) for row in model.chunks()] == chunks
    found = bfcviz.why(path)
    assert (found.requested, found.rounded, found.bytes_limit) == (2 * MIB - 100, 2 * MIB, 5 * MIB)
    assert (found.verdict, found.settings.family) == ("fragmentation", Family.ONNX)
    assert not [each.text for each in found.advice if "TF_" in each.text]


def test_a_message_without_chunks_is_read_as_a_text(tmp_path):
    path = tmp_path / "onnx.log"
    path.write_text(BEFORE.format(1, 376) + "Available memory of 0 is smaller than requested bytes of 2048\n")
    (found,) = bfcviz.why(path).failures
    assert found.judgement.cause == "cap_by_setting"
