"""The messages of the BFC allocator, from 2015 to 2026, as regular expressions.

White space may be a line break wherever a text was wrapped. Every repetition is bounded or ends at a fixed character:
a search takes time proportional to the text.
"""

import re
from typing import Final

from bfcviz.importers.bfc_log.printed_sizes import NUMBER, SIZE

HEADER: Final = re.compile(
    rf"Allocator\s+\((?P<name>[^()\s]{{1,200}})\)\s+ran\s+out\s+of\s+memory\s+trying\s+to\s+allocate\s+(?P<size>{SIZE})"
    r"(?:\s+\(rounded\s+to\s+(?P<rounded>\d{1,19})\))?"
)
"""The warning before a dump, since 2017; also the warning of a request that may fail."""

LATE_HEADER: Final = re.compile(rf"Ran\s+out\s+of\s+memory\s+trying\s+to\s+allocate\s+(?P<size>{SIZE})")
"""The same until 2017: after the dump, and without a name."""

NOT_A_FAILURE: Final = re.compile(r"\bthis\s+is\s+not\s+a\s+failure|\bwith\s+freed_by_count=")
REQUESTED_BY: Final = re.compile(r"requested\s+by\s+op[ \t]+(?P<op>[^\s\"\\][^\n\r\"]{0,4000})")
FROM_END: Final = re.compile(r"from\s+the\s+(?P<end>\w{1,20})\s+end\b")
GARBAGE_COLLECTION: Final = re.compile(r"Garbage\s+collection:\s+deallocate\s+free\s+memory\s+regions")
REFUSED: Final = re.compile(
    r"failed\s+to\s+allocate\s+\S{1,20}\s+\((?P<bytes>\d{1,19})\s+bytes\)\s+from\s+device"
)
"""Of `cuda_driver.cc` and its successors: the sub-allocator got no memory."""

DUMP_FOR: Final = re.compile(r"BFCAllocator\s+dump\s+for\s+(?P<name>\S{1,200})")
BIN: Final = re.compile(
    r"Bin\s+\((?P<bin>\d{1,19})\):\s*Total\s+Chunks:\s+(?P<chunks>\d{1,19}),\s+Chunks\s+in\s+use:\s+"
    rf"(?P<used>\d{{1,19}})\.?\s+(?P<bytes>{SIZE})\s+allocated\s+for\s+chunks\.\s+"
    rf"(?P<old>{SIZE}\s+client-requested\s+for\s+chunks\.\s+)?(?P<used_bytes>{SIZE})\s+in\s+use\s+in\s+bin\.\s+"
    rf"(?P<requested>{SIZE})\s+client-requested\s+in\s+use"
)
"""`old`: until 2017 the bins counted only free chunks."""

BIN_FOR: Final = re.compile(rf"Bin\s+for\s+(?P<size>{SIZE})\s+was\s+{SIZE},\s+Chunk\s+State")
REGION: Final = re.compile(r"Next\s+region\s+of\s+size\s+(?P<size>\d{1,19})")
CENTRAL_GAP: Final = "central_gap"
"""Tag of the free memory between the two ends of a pool."""

CHUNK: Final = re.compile(
    r"(InUse|Free|Chunk)\s+at\s+(?:0x)?([0-9A-Fa-f]{1,16})(?:\s+next\s+\d{1,20})?\s+of\s+size\s+(\d{1,19})\b"
    r"(?:\s+tag\s+(\w{1,20}))?"
    r"(?:\s+by\s+op\s+([^\n\r]{1,4000}?)\s+action_count\s+\d{1,20}\s+step\s+\d{1,20})?"
    r"(?:\s+allocation_annotation\s+([^\n\r]{1,16000}?)\s+next\s+\d{1,20})?"
)
"""The word, address, size, tag, operation and annotation of a chunk."""

CHUNK_LINES: Final = re.compile(
    r"(?:InUse|Free|Chunk) {1,2}at (?:0x)?[0-9A-Fa-f]{1,16}(?: next \d{1,20})? of size \d{1,19}"
    r"[^\n\r\]]*\r?[\",]{0,3}\n"
)
"""A chunk line as it is written, to the end of the line."""

SUMMARY: Final = re.compile(r"(?P<count>\d{1,19})\s+Chunks\s+of\s+size\s+(?P<size>\d{1,19})\s+totalling\s")
SUM: Final = re.compile(rf"Sum\s+Total\s+of\s+in-use\s+chunks:\s+(?P<size>{SIZE})")
POOL: Final = re.compile(
    rf"(?:total_region_allocated_bytes_|Total\s+(?:bytes|size)\s+in\s+pool):\s+(?P<pool>{NUMBER})\s+memory_limit_:\s+"
    rf"(?P<limit>{NUMBER})\s+available\s+(?:bytes|size):\s+(?P<available>{NUMBER})\s+"
    rf"curr_region_allocation_bytes_:\s+(?P<next>{NUMBER})"
)
MEMORY_SUMMARY: Final = re.compile(
    rf"Allocator\s+memory\s+summary:\s+rounded\s+request\s+{SIZE},\s+total\s+free\s+in\s+pool\s+{SIZE},\s+largest\s+free\s+"
    rf"chunk\s+usable\s+by\s+\w{{1,20}}\s+end\s+{SIZE},\s+unallocated\s+bytes\s+(?P<available>{SIZE}),\s+"
    rf"pool\s+size\s+(?P<pool>{SIZE}),\s+pool\s+limit\s+(?P<limit>{SIZE})"
)
"""`POOL` of XLA in 2026."""

GROWTH: Final = re.compile(r"\(growth\s+(?P<growth>enabled|disabled)\b")
STAT: Final = re.compile(
    r"\b(Limit|InUse|MaxInUse|NumAllocs|MaxAllocSize|Reserved|PeakReserved|LargestFreeBlock):[ \t]{1,40}"
    rf"({NUMBER})"
)
STRIP: Final = re.compile(r"\s*([*x_]{20,100}|<allocator contains no memory>)[ \t]*(?:$|[\n\r\"])")
"""The occupancy of the pool: `*` in use, `x` lost to rounding, `_` free."""

OOM_TENSOR: Final = re.compile(
    r"OOM\s+when\s+allocating\s+tensor\s+with\s+shape\s?\[(?P<shape>[\d,\s]{0,200})\](?:\s+and\s+type\s+(?P<type>\w{1,40}))?"
    r"(?:\s+on\s+\S{1,200})?(?:\s+by\s+allocator\s+(?P<name>[^\s\"\\]{1,200}))?"
)
OUT_OF_BYTES: Final = re.compile(
    rf"[Oo]ut\s+of\s+memory\s+(?:while\s+)?trying\s+to\s+allocate\s+(?P<size>\d{{1,19}}(?=\s+bytes)|{SIZE})"
)
"""The error of XLA and JAX; since 2025 its size may have a unit."""

NODE: Final = re.compile(r"\{\{node\s+([^\s{}]{1,1000})\}\}|\[\[Node:\s+([^\s\]]{1,1000})\s+=")
