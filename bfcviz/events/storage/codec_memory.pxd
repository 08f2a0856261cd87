# The tables of block_codec, in C. codec_memory.py says what they mean, and is the same in plain Python.

from libc.stdint cimport uintptr_t

from bfcviz.events.event_record cimport Event
from bfcviz.native cimport u8, u16, u32, u64

cdef enum:
    UNKNOWN = 0
    FREE_CHUNK = 1
    USED_CHUNK = 2

cdef enum:
    SEQ = 0
    POOL = 1
    KIND = 2
    TIME = 3
    BY = 4
    CHUNK = 5
    OTHER = 6
    REGION = 7
    STREAM = 8
    SIZE = 9
    ADDRESS = 10
    REQUESTED = 11
    LABEL = 12
    THREAD = 13
    BIN = 14
    FLAGS = 15
    NUM_FIELDS = 16

cdef enum:
    NUM_KINDS = 4096

cdef struct Row:
    u64 address
    u64 size
    u64 requested
    u32 chunk
    u32 born
    u32 label
    u32 before
    u32 after
    u16 thread
    u16 stream
    u16 region
    u8 pool
    u8 state

cdef struct Habit:
    u64 size
    u64 requested
    u32 label

cdef inline void* _start(object array) except NULL:
    return <void*><uintptr_t>array.ctypes.data

cdef inline Event* events(object array) except NULL:
    return <Event*>_start(array)

cdef inline Row* rows(object array) except NULL:
    return <Row*>_start(array)

cdef inline Habit* habits(object array) except NULL:
    return <Habit*>_start(array)

cdef inline u64* words(object array) except NULL:
    return <u64*>_start(array)

cdef inline u32* handles(object array) except NULL:
    return <u32*>_start(array)

cdef inline u16* masks(object array) except NULL:
    return <u16*>_start(array)

cdef inline Event* event(Event* table, Py_ssize_t index) noexcept nogil:
    return table + index

cdef inline Row* row(Row* table, u64 index) noexcept nogil:
    return table + index

cdef inline Habit* habit(Habit* table, u64 index) noexcept nogil:
    return table + index

cdef inline void put(Event* table, Py_ssize_t index, Event* record) noexcept nogil:
    table[index] = record[0]
