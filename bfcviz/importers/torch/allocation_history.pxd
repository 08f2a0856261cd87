cimport cython

cdef object MISSING
cdef object SPENT
cdef object TRACE_ENTRY


@cython.final
cdef class CodeFrame:
    cdef readonly str filename
    cdef readonly object line
    cdef readonly str name
    cdef readonly str node
    cdef readonly str origin


@cython.final
cdef class FrameStack:
    cdef readonly Py_ssize_t number


@cython.final
cdef class HistoryRows:
    cdef readonly Py_ssize_t count
    cdef public Py_ssize_t pending
    cdef readonly object action
    cdef readonly object address
    cdef readonly object size
    cdef readonly object block
    cdef readonly object stream
    cdef readonly object time
    cdef readonly object source
    cdef readonly list sources
    cdef readonly list stacks
    cdef readonly dict strange
    cdef dict _frames
    cdef dict _stacks
    cdef dict _sources

    @cython.locals(made=dict, place=Py_ssize_t)
    cpdef object of_dict(self, list items)
    cpdef object of_list(self, list items)
    cdef object of_trace(self, Py_ssize_t first, Py_ssize_t count)
    cdef object _frame(self, dict made)
    @cython.locals(number=int)
    cdef int _add_row(self, dict entry) except -1
    cdef object _source(self, dict entry)


@cython.locals(stack=FrameStack)
cpdef Py_ssize_t number_of(frames) except -1
cpdef object number_in(value, str what)
cpdef bint is_entry(value)
cpdef object words_in(value)
cpdef object forward_in(value)
cpdef object pool_words(value)
