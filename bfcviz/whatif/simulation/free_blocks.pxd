cimport cython

from bfcviz.native cimport i64


@cython.final
cdef class FreeBlocks:
    cdef public dict sizes
    cdef public dict starts
    cdef public i64 total
    cdef public i64 merged
    cdef list _distinct
    cdef dict _by_size
    cdef i64 _recent_from
    cdef set _recent

    @cython.locals(same=list)
    cpdef object add(self, i64 address, i64 size)
    @cython.locals(size=i64, same=list)
    cpdef i64 remove(self, i64 address)
    @cython.locals(at=Py_ssize_t)
    cpdef i64 best_fit(self, i64 size)
    @cython.locals(at=Py_ssize_t, whole=i64, same=list, number=Py_ssize_t, address=i64)
    cpdef i64 aligned_fit(self, i64 size, i64 alignment, bint descending)
    @cython.locals(at=Py_ssize_t, found=i64, address=i64)
    cpdef i64 first_fit(self, i64 size)
    @cython.locals(at=Py_ssize_t, same=list)
    cpdef i64 next_larger(self, i64 address)
    cpdef i64 largest(self)
    @cython.locals(found=i64, at=Py_ssize_t, size=i64, room=i64)
    cpdef i64 largest_before(self, i64 end)
    cpdef list take_recent(self)
    @cython.locals(whole=i64)
    cpdef object take_front(self, i64 address, i64 size)
    cpdef i64 add_merged(self, i64 address, i64 size)
    cpdef i64 merge_around(self, i64 address, i64 size)
