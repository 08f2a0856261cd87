cimport cython

from bfcviz cimport native
from bfcviz.events cimport event_record
from bfcviz.events.storage cimport codec_memory
from bfcviz.native cimport u8, u16, u32, u64


@cython.final
cdef class EventCodec:
    cdef object _row_table
    cdef object _unused_table
    cdef object _request_table
    cdef object _size_table
    cdef object _follower_table
    cdef object _kind_table
    cdef object _flag_table
    cdef object _scratch
    cdef object _place_table
    cdef object _none_table
    cdef object _sums
    cdef object _residual_table
    cdef Py_ssize_t _room
    cdef object _arrays
    cdef event_record.Event *_events
    cdef event_record.Event *_first
    cdef codec_memory.Row *_rows
    cdef codec_memory.Row *_none
    cdef codec_memory.Habit *_requests
    cdef codec_memory.Habit *_sizes
    cdef u16 *_masks
    cdef u32 *_unused
    cdef u32 *_followers
    cdef u32 *_kinds
    cdef u32 *_flags
    cdef u64 *_words
    cdef u64 *_residuals
    cdef u64 *_places
    cdef u64 _mask
    cdef u64 _last_row
    cdef u64 _num_unused
    cdef u64 _highest
    cdef u64 _trail
    cdef u64 _last_key
    cdef u64 _history
    cdef u64 _circumstances
    cdef u64 _last_request
    cdef u64 _allocation
    cdef u64 _stream
    cdef u64 _value
    cdef u64 _survivor
    cdef u64 _absorbed
    cdef bint _decoding
    cdef bint _failed

    @cython.locals(state="void *", i=Py_ssize_t)
    cdef list _code_all(self, Py_ssize_t count)

    @cython.locals(place=u64)
    cdef u64 _code(self, int field, u64 guess, u64 base, u64 value) noexcept nogil
    @cython.locals(e="event_record.Event *", x="event_record.Event *", last="event_record.Event *", row="codec_memory.Row *", other="codec_memory.Row *", thread=u16)
    cdef void _code_event(self, Py_ssize_t i) noexcept nogil

    @cython.locals(row="codec_memory.Row *")
    cdef bint _look_for_merge(self, event_record.Event *last, u8 pool) noexcept nogil
    @cython.locals(likely=u64)
    cdef u64 _next_kind(self, event_record.Event *last, u8 pool) noexcept nogil
    @cython.locals(likely=u64)
    cdef u64 _next_chunk(self, u8 kind, event_record.Event *last) noexcept nogil
    @cython.locals(likely=u64)
    cdef u64 _next_handle(self) noexcept nogil
    cdef u64 _trail_of(self, u8 kind) noexcept nogil
    @cython.locals(after=u64)
    cdef u64 _next_other(self, event_record.Event *x, codec_memory.Row *row, u64 value) noexcept nogil
    cdef u64 _next_stream(self, u8 kind, codec_memory.Row *row, u64 value) noexcept nogil
    @cython.locals(habit="codec_memory.Habit *")
    cdef u64 _next_size(self, event_record.Event *x, codec_memory.Row *row, codec_memory.Row *other, u64 value) noexcept nogil
    @cython.locals(guess=u64)
    cdef u64 _next_address(self, event_record.Event *x, codec_memory.Row *row, codec_memory.Row *other, event_record.Event *last, u64 value) noexcept nogil
    @cython.locals(habit="codec_memory.Habit *", guess=u64)
    cdef u64 _next_requested(self, event_record.Event *x, codec_memory.Row *row, u64 value) noexcept nogil
    @cython.locals(habit="codec_memory.Habit *")
    cdef u64 _next_label(self, event_record.Event *x, codec_memory.Row *row, u64 value) noexcept nogil
    @cython.locals(size=u64)
    cdef u64 _next_bin(self, event_record.Event *x, codec_memory.Row *row, event_record.Event *last) noexcept nogil

    @cython.locals(row="codec_memory.Row *")
    cdef codec_memory.Row *_find(self, u32 chunk, u8 pool) noexcept nogil
    @cython.locals(row="codec_memory.Row *")
    cdef codec_memory.Row *_enter(self, u32 chunk, u8 pool) noexcept nogil
    @cython.locals(kind=int)
    cdef void _learn(self, event_record.Event *x, event_record.Event *last) noexcept nogil
    @cython.locals(key=u64)
    cdef void _began(self, event_record.Event *x) noexcept nogil
    @cython.locals(row="codec_memory.Row *", habit="codec_memory.Habit *", key=u64)
    cdef void _allocated(self, event_record.Event *x) noexcept nogil
    cdef void _freed(self, event_record.Event *x) noexcept nogil
    @cython.locals(row="codec_memory.Row *", rest="codec_memory.Row *")
    cdef void _was_split(self, event_record.Event *x) noexcept nogil
    @cython.locals(row="codec_memory.Row *", other="codec_memory.Row *")
    cdef void _merged(self, event_record.Event *x) noexcept nogil
    @cython.locals(row="codec_memory.Row *")
    cdef codec_memory.Row *_placed(self, u32 chunk, event_record.Event *x) noexcept nogil
    @cython.locals(row="codec_memory.Row *")
    cdef void _link(self, u32 after, u8 pool, u32 before) noexcept nogil
    @cython.locals(row="codec_memory.Row *")
    cdef void _dropped(self, u32 chunk, u8 pool) noexcept nogil
    cdef void _took_handle(self, u32 chunk) noexcept nogil
    cdef void _left_handle(self, u32 chunk) noexcept nogil
    @cython.locals(sums="u64 *", i=Py_ssize_t, lane=int, total=u64, state="void *")
    cdef u64 _checksum(self, Py_ssize_t count) except? 0xFFFFFFFFFFFFFFFF


cdef u64 _zigzag_encoded(u64 difference) noexcept nogil
cdef u64 _zigzag_decoded(u64 number) noexcept nogil
