cimport cython
from libc.stdint cimport uint8_t, uint64_t

from bfcviz.model cimport array_access

@cython.final
cdef class Cells:
    cdef const uint64_t[::1] _address
    cdef const uint64_t[::1] _size
    cdef const Py_ssize_t[::1] _first
    cdef Py_ssize_t _regions
    cdef Py_ssize_t _columns
    cdef Py_ssize_t _count
    cdef double _cell
    cdef Py_ssize_t _classes
    cdef int _pool
    cdef double[:, ::1] _sums
    cdef double[::1] _totals

    @cython.locals(i=Py_ssize_t)
    cpdef add_chunks(self, const uint64_t[:] address, const uint64_t[:] size, const uint64_t[:] requested, const uint8_t[::1] classes)
    @cython.locals(count=Py_ssize_t, i=Py_ssize_t, events="array_access.Event*", e="array_access.Event*")
    cpdef take(self, block, const uint8_t[::1] classes)
    @cython.locals(
        in_use="double[::1]", waste="double[::1]", region="double[::1]", by_class="double[:, ::1]", mine=Py_ssize_t,
        i=Py_ssize_t, left=double, each=int,
    )
    cpdef cell_bytes(self)
    @cython.locals(total=double)
    cdef double _total(self, int layer, Py_ssize_t i) noexcept
    @cython.locals(mine=Py_ssize_t, begin=double, end=double)
    cdef void _add(self, uint64_t address, uint64_t size, uint64_t requested, Py_ssize_t class_, double sign) noexcept
    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cdef Py_ssize_t _region_of(self, uint64_t address) noexcept
    cdef void _ramp(self, int layer, double begin, double end, double weight) noexcept
    @cython.locals(at=Py_ssize_t, late=double)
    cdef void _step(self, int layer, double place, double weight) noexcept

@cython.locals(
    row=Py_ssize_t, i=Py_ssize_t, each=Py_ssize_t, chosen=Py_ssize_t, total=double, wanted=double, across=Py_ssize_t,
    turn=Py_ssize_t,
)
cpdef choose_classes(const double[:, :, :] by_class, uint8_t[:, ::1] out, bint along_rows=*)

@cython.locals(
    in_use="const double[:, :]", region="const double[:, :]", row=Py_ssize_t, i=Py_ssize_t, channel=int,
    free=Py_ssize_t, used=double, mixed=double,
)
cpdef paint_cells(
    held, const uint8_t[:, ::1] chosen, const double[:, ::1] fills, double min_share, uint8_t[:, :, ::1] out
)
