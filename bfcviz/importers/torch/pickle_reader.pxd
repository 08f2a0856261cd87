cimport cython
from libc.stdint cimport uint64_t
from bfcviz.importers.torch cimport pickle_opcodes as ops
from bfcviz.importers.torch.allocation_history cimport MISSING, SPENT, TRACE_ENTRY, FrameStack, HistoryRows

cdef class PickleBytes:
    cdef object _path
    cdef bytes _data
    cdef const unsigned char *_bytes
    cdef Py_ssize_t _at
    cdef Py_ssize_t _stop

    @cython.locals(number=uint64_t, place=Py_ssize_t)
    cdef uint64_t _number(self, int size) except? 0xFFFFFFFFFFFFFFFF
    @cython.locals(start=Py_ssize_t)
    cdef bytes _slice(self, uint64_t length)
    cdef int _slice_length(self, uint64_t length) except -1
    @cython.locals(end=Py_ssize_t, start=Py_ssize_t)
    cdef bytes _line(self, Py_ssize_t longest)
    cdef object _damage(self, object reason, Py_ssize_t back=*)

cdef int LIST
cdef int DICT
cdef int SET
cdef Py_ssize_t BATCH


@cython.final
cdef class OpenContainer:
    cdef int form
    cdef Py_ssize_t slot
    cdef bint is_closed
    cdef Py_ssize_t entries
    cdef Py_ssize_t first_row
    cdef list items
    cdef object value


cdef class PickleStack(PickleBytes):
    cdef HistoryRows _rows
    cdef list _stack
    cdef list _marks
    cdef list _memo
    cdef dict _texts
    cdef dict _repeats
    cdef Py_ssize_t _values
    cdef Py_ssize_t _most_values

    cdef int _add_text(self, str text) except -1
    cdef OpenContainer _open(self, int form)
    @cython.locals(start=Py_ssize_t, made=OpenContainer)
    cdef int _open_filled(self, int form) except -1
    @cython.locals(start=Py_ssize_t, count=Py_ssize_t, made=OpenContainer)
    cdef int _fill(self, int form) except -1
    @cython.locals(start=Py_ssize_t)
    cdef int _add_one(self, int form, Py_ssize_t count) except -1
    @cython.locals(made=OpenContainer)
    cdef OpenContainer _empty_list(self)
    cdef OpenContainer _container_at(self, Py_ssize_t place)
    @cython.locals(entries=Py_ssize_t, place=Py_ssize_t)
    cdef int _add(self, OpenContainer made, Py_ssize_t start, int form) except -1
    @cython.locals(first=Py_ssize_t)
    cdef int _add_entries(self, OpenContainer made, Py_ssize_t entries) except -1
    cdef int _tuple(self, Py_ssize_t start) except -1
    cdef object _closed(self, value)
    cdef object _close(self, OpenContainer made)
    cdef object _close_as(self, OpenContainer made, value)
    @cython.locals(place=Py_ssize_t)
    cdef int _check_keys(self, list items) except -1
    cdef int _check_no_entries(self, values) except -1
    cdef object _plain(self, values)
    cdef int _mark(self) except -1
    cdef Py_ssize_t _unmark(self) except -1
    cdef Py_ssize_t _last_mark(self)
    cdef int _get(self, uint64_t number) except -1
    @cython.locals(made=OpenContainer)
    cdef int _put(self, uint64_t number) except -1
    cdef int _count_value(self) except -1

@cython.final
cdef class PickleReader(PickleStack):
    cdef readonly object cut

    cdef bint _carry_out_all(self) except -1
    cdef object _whole(self)
    cdef bint _carry_out(self, int op) except -1
    @cython.locals(made=OpenContainer, end=Py_ssize_t, run=bytes)
    cdef bint _repeat(self) except -1
    @cython.locals(at=Py_ssize_t, count=Py_ssize_t, op=int)
    cdef Py_ssize_t _end_of_references(self)
    @cython.locals(number=uint64_t)
    cdef bint _read_number(self, int op) except -1
    @cython.locals(last=Py_ssize_t)
    cdef int _read_long(self, Py_ssize_t length) except -1
    cdef int _read_printed(self, int op, bytes text) except -1
    @cython.locals(size=int, quote=bytes)
    cdef bint _read_text(self, int op) except -1
    cdef bint _build(self, int op) except -1
    cdef bint _build_tuple(self, int op) except -1
    @cython.locals(version=int, number=object)
    cdef bint _remember(self, int op) except -1
    @cython.locals(made=OpenContainer)
    cdef object _unfinished(self)
    cdef bint _grows(self, Py_ssize_t place) except -1
    cdef bint _is_whole(self, Py_ssize_t place) except -1
    @cython.locals(made=OpenContainer)
    cdef bint _is_open(self, Py_ssize_t place) except -1
    @cython.locals(made=OpenContainer)
    cdef object _whole_items(self, Py_ssize_t place)
    cdef object _refused(self, int op)
