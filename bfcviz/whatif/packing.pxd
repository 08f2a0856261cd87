cimport cython
from bfcviz cimport native
from bfcviz.native cimport i64


@cython.final
cdef class Skyline:
    cdef i64 _leaves
    cdef i64[::1] _best
    cdef i64[::1] _all

    @cython.locals(low=i64, high=i64, found=i64, node=i64, end=i64)
    cpdef i64 top(self, i64 start, i64 stop)
    @cython.locals(low=i64, high=i64, node=i64, end=i64)
    cpdef void lift(self, i64 start, i64 stop, i64 value)
    cdef void _lift_node(self, i64 node, i64 value) noexcept


@cython.locals(count=i64, placed=i64[:, ::1], block=i64, low=i64, at=i64, row=i64)
cpdef object fill_gaps(const i64[::1] start, const i64[::1] stop, const i64[::1] size, i64[::1] offset)

@cython.locals(block=i64, low=i64)
cpdef object stack(Skyline skyline, const i64[::1] start, const i64[::1] stop, const i64[::1] size, i64[::1] offset)

@cython.locals(block=i64)
cpdef i64 first_overlap(Skyline skyline, const i64[::1] start, const i64[::1] stop, const i64[::1] offset, const i64[::1] end)


cdef i64 _BEYOND

@cython.final
cdef class Task:
    cdef i64 start
    cdef i64 stop
    cdef i64 first
    cdef i64 last
    cdef i64 owner
    cdef Task after

@cython.final
cdef class Frame:
    cdef Task task
    cdef i64 start
    cdef i64 stop
    cdef i64 end
    cdef i64 back
    cdef i64 trail
    cdef i64 offset
    cdef i64 rank
    cdef i64 ceiling
    cdef i64 block
    cdef bint alone

@cython.final
cdef class CanonicalSearch:
    cdef readonly i64[::1] offset
    cdef i64 _count
    cdef i64[::1] _size
    cdef i64[::1] _first
    cdef i64[::1] _last
    cdef i64[::1] _neighbours
    cdef i64[::1] _neighbours_at
    cdef i64[::1] _members
    cdef i64[::1] _members_at
    cdef bint _by_total
    cdef i64 _height
    cdef i64[::1] _place_in_order
    cdef i64[::1] _low
    cdef i64[::1] _floor
    cdef i64[::1] _left
    cdef i64[::1] _cuts
    cdef i64[::1] _most
    cdef i64[::1] _touched
    cdef i64[::1] _stamps
    cdef i64 _stamp
    cdef i64[::1] _trail
    cdef i64 _trail_end
    cdef i64[::1] _list
    cdef i64 _list_end
    cdef list _frames
    cdef i64 _depth
    cdef bint _solved

    @cython.locals(step=i64, frame=Frame)
    cpdef int run(self, i64 steps) except -1
    @cython.locals(root=Frame)
    cdef bint _begin(self, i64 sections) except -1
    @cython.locals(block=i64, offset=i64, rank=i64, at=i64, other=i64, low=i64, place=i64)
    cdef bint _choose(self, Frame frame) noexcept
    @cython.locals(block=i64, offset=i64, top=i64, touched=i64, at=i64, other=i64, section=i64, task=Task, floor=i64)
    cdef bint _place(self, Frame frame) except -1
    @cython.locals(lowest=i64, at=i64, other=i64)
    cdef void _raise_floor(self, i64 section) noexcept
    @cython.locals(block=i64, number=i64, value=i64, section=i64)
    cdef void _undo(self, Frame frame) noexcept
    @cython.locals(task=Task, block=i64, back=i64, section=i64, new=Frame)
    cdef bint _descend(self, Frame frame) except -1
    @cython.locals(frame=Frame)
    cdef bint _start(self, Task task) except -1
    @cython.locals(frame=Frame, unplaced=i64, ceiling=i64, at=i64, block=i64, top=i64)
    cdef int _open(self, i64 start, i64 stop, i64 back) except -1
    @cython.locals(found=Task, last=Task, part=Task, first=i64, section=i64)
    cdef Task _tasks_of(self, Task task, Frame frame, i64 owner)
    @cython.locals(start=i64)
    cdef Task _task_of(self, Frame frame, i64 first, i64 last)
    @cython.locals(end=i64, at=i64, block=i64)
    cdef i64 _copy(self, i64 start, i64 stop, i64 first, i64 last) except -1
    @cython.locals(at=i64, block=i64, most=i64, section=i64, place=i64)
    cdef int _sort_by_total(self, i64 start, i64 stop) except -1
    cdef bint _before(self, i64 block, i64 most, i64 other) noexcept
    cdef void _note(self, i64 number, i64 value) noexcept
    @cython.locals(most=i64)
    cdef int _reserve_trail(self) except -1
