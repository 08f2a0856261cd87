cimport cython

from bfcviz cimport native
from bfcviz.allocator.heap cimport Heap
from bfcviz.native cimport i64, u8, u16, u32, u64

@cython.locals(i=i64, address=u64, h=u32)
cpdef object run(
    Heap heap, i64 start, i64 stop, const u8[::1] kind, const i64[::1] slot, const i64[::1] size,
    const i64[::1] alignment, const i64[::1] freed_before, const i64[::1] time, const u32[::1] label,
    const u16[::1] thread, const u16[::1] stream, u64[::1] live, u64[::1] address_out, u64[::1] size_out,
    u64[::1] id_out, u64[::1] in_use_out, u64[::1] pool_out, u64[::1] largest_out,
)

cpdef object run_with_clock(Heap heap, bint timed, i64 start, i64 stop, list columns, object live, tuple out)
