cdef class UninterruptedCall:
    cdef object _function
