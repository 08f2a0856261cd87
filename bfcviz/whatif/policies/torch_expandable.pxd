cimport cython

from bfcviz.native cimport i64
from bfcviz.whatif.simulation.driver_memory cimport DriverMemory
from bfcviz.whatif.simulation.free_blocks cimport FreeBlocks


@cython.final
cdef class ExpandableRange:
    cdef DriverMemory _driver
    cdef FreeBlocks _free
    cdef i64 _granule
    cdef i64 _base
    cdef FreeBlocks _unmapped

    @cython.locals(larger=i64, size=i64)
    cpdef i64 least_growing(self, i64 address)
    @cython.locals(address=i64, there=i64, end=i64, room=i64)
    cpdef i64 grow(self, i64 size)
    @cython.locals(address=i64, size=i64, low=i64, high=i64)
    cpdef object unmap_free(self)
    @cython.locals(size=i64)
    cdef i64 _could_become(self, i64 address)
    @cython.locals(place=i64, start=i64, end=i64, more=i64)
    cdef i64 _lowest_place(self, i64 size)
    @cython.locals(room=i64, start=i64, whole=i64)
    cdef i64 _map(self, i64 address, i64 size)
    @cython.locals(start=i64, whole=i64)
    cdef object _unmap(self, i64 address, i64 size, i64 low, i64 high)
