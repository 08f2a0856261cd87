# The C side of array_access.py. A test checks that both files and the NumPy dtypes agree.
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t, uintptr_t

from bfcviz.events.event_record cimport ALLOCATE, EXTEND, FREE, GREW, MARK, MERGE, OOM, RELEASE, SPLIT, Event

cdef enum:
    COMPILED = 1

# Where no values stand: from 0 on.
cdef enum:
    NOTHING, CHUNK_FREE, CHUNK_IN_USE, REGION_LIVE

# The series of EXTREMES_ROW.
cdef enum:
    IN_USE, REQUESTED, POOL, FREE_BYTES, LARGEST, TOO_SMALL

# The series of RATIO_ROW.
cdef enum:
    EXTERNAL, INTERNAL, NOT_IN_USE_SHARE, TOO_SMALL_SHARE

# A row of timeline.TIMELINE.
cdef enum:
    HEAD_WORDS = 3, SERIES_WORDS = 7, TOTALS = 6

# The layers of figures.map_cells.
cdef enum:
    HELD, WASTED, FIRST_CLASS

cdef enum:
    FINE, WRONG_STEP, WRONG_POOL, UNKNOWN_KIND, ABSENT, NOT_FREE, NOT_IN_USE, OTHER_REGION, OTHER_PLACE, OTHER_OWNER
    SHORT, EMPTY, TOO_LARGE, HANDLE_TAKEN, HANDLE_TOO_HIGH, NOT_NEIGHBOURS, SLOT_TAKEN, SLOT_EMPTY, OVERLAP, NOT_AT_END

# bfcviz.model.row_storage.CHUNK_ROW
cdef struct Chunk:
    uint64_t address
    uint64_t size
    uint64_t requested
    uint64_t born
    uint32_t handle
    uint32_t label
    uint16_t thread
    uint16_t stream
    uint16_t region
    uint16_t state

# bfcviz.model.row_storage.REGION_ROW
cdef struct Region:
    uint64_t address
    uint64_t size
    uint64_t state

# bfcviz.model.row_storage.EXTREMES_ROW
cdef struct Extremes:
    uint64_t low
    uint64_t high
    uint64_t last
    uint64_t low_step
    uint64_t high_step
    int64_t low_time
    int64_t high_time

# bfcviz.model.row_storage.RATIO_ROW
cdef struct Ratios:
    double low
    double high
    double last
    uint64_t low_step
    uint64_t high_step
    int64_t low_time
    int64_t high_time

cdef inline void* _start(object array) except NULL:
    # Not `__array_interface__`, which describes every field of the dtype first: eleven times as long.
    return <void*><uintptr_t>array.ctypes.data

cdef inline Event* events(object block) except NULL:
    return <Event*>_start(block)

cdef inline Event* event(Event* rows, Py_ssize_t index) noexcept nogil:
    return rows + index

cdef inline Chunk* chunks(object store) except NULL:
    return <Chunk*>_start(store)

cdef inline Chunk* chunk(Chunk* rows, Py_ssize_t handle) noexcept nogil:
    return rows + handle

cdef inline Region* regions(object store) except NULL:
    return <Region*>_start(store)

cdef inline Region* region(Region* rows, Py_ssize_t slot) noexcept nogil:
    return rows + slot

cdef inline Extremes* extremes(object store) except NULL:
    return <Extremes*>_start(store)

cdef inline Extremes* extreme(Extremes* rows, Py_ssize_t series) noexcept nogil:
    return rows + series

cdef inline Ratios* ratios(object store) except NULL:
    return <Ratios*>_start(store)

cdef inline Ratios* ratio(Ratios* rows, Py_ssize_t series) noexcept nogil:
    return rows + series

cdef inline uint64_t* numbers(object store) except NULL:
    return <uint64_t*>_start(store)

cdef inline double* floats(object store) except NULL:
    return <double*>_start(store)

cdef inline Py_ssize_t whole_part(double number) noexcept nogil:
    return <Py_ssize_t>number

cdef inline bint passes_end(uint64_t address, uint64_t size) noexcept nogil:
    return address + size < address
