cimport cython

from bfcviz cimport native
from bfcviz.native cimport u64

cdef u64 round_up(u64 num_bytes) noexcept nogil
@cython.locals(less=u64)
cdef u64 smaller(u64 num_bytes) noexcept nogil
cdef u64 double(u64 num_bytes) noexcept nogil
@cython.locals(padding=u64)
cdef u64 padding_of(u64 address, u64 alignment) noexcept nogil
