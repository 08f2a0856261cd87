cdef class UninterruptedCall:
    cdef object _function
    cdef object _is_finalizing
