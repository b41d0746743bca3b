# cython: language_level=3
"""Columns, varints and fields as the compiled kernel sees them: as pointers that are checked where they are followed."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    /* Bytes of a varint: 7 bits each. 9/64 is near enough to 1/7 for up to 64 bits. */
    static inline int unsigned_varint_size(unsigned long long value) {
        return ((63 - __builtin_clzll(value | 1)) * 9 + 73) >> 6;
    }
    """
    int unsigned_varint_size(uint64_t value) noexcept nogil

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__GNUC__)
    /* Hints to the processor, for any address: one that cannot be read does no harm. Inlined always: else GCC takes a function
       that does nothing but hint for one without effects, and leaves it out. */
    #define HINT static inline __attribute__((always_inline)) void
    HINT will_read(const uint8_t* data, const int32_t* offsets32, const int64_t* offsets64, int64_t near, int64_t far) {
        const uint8_t* start = data + (offsets32 ? offsets32[near] : offsets64[near]);
        __builtin_prefetch(start);
        __builtin_prefetch(start + 64);
        __builtin_prefetch(offsets32 ? (const void*)(offsets32 + far) : (const void*)(offsets64 + far));
    }
    HINT will_copy(const uint8_t* data, const int32_t* offsets32, const int64_t* offsets64, int64_t row) {
        int64_t start = offsets32 ? offsets32[row] : offsets64[row];
        int64_t stop = offsets32 ? offsets32[row + 1] : offsets64[row + 1];
        for (int line = 0; line < 32 && start < stop; line++, start += 64) __builtin_prefetch(data + start);
    }
    HINT will_write(const uint8_t* start) {
        __builtin_prefetch(start, 1);
        __builtin_prefetch(start + 64, 1);
    }
    #else
    #define will_read(data, offsets32, offsets64, near, far) ((void)0)
    #define will_copy(data, offsets32, offsets64, row) ((void)0)
    #define will_write(start) ((void)0)
    #endif
    """
    # The data of row `near` of a column are read soon, those of row `far` later. Both rows lie within the column.
    void will_read(
        const uint8_t* data, const int32_t* offsets32, const int64_t* offsets64, int64_t near, int64_t far
    ) noexcept nogil
    # The whole value of the row, or the first 2 KiB of it, is copied soon. The row lies within the column.
    void will_copy(
        const uint8_t* data, const int32_t* offsets32, const int64_t* offsets64, int64_t row
    ) noexcept nogil
    # These 128 bytes, two cache lines, are written soon.
    void will_write(const uint8_t* start) noexcept nogil

cdef enum Fault:
    OUTSIDE_DATA = -1
    OUTSIDE_ROWS = -2

cdef struct Values:
    # An Arrow binary column has `count` values in `size` bytes of `data`. One of the two offsets is set; `valid` is NULL
    # if no row is null.
    const uint8_t* data
    int64_t size
    int64_t count
    const int32_t* offsets32
    const int64_t* offsets64
    const uint8_t* valid

cdef struct Slice:
    const uint8_t* start
    int64_t length  # -1 means null


cdef inline object fault(int code):
    what = "a row, slot or count lies outside of the columns" if code == OUTSIDE_ROWS else "a column's offsets point out of its data"
    return ValueError(f"{what}: the input is damaged")


cdef inline int take(const Values* column, int64_t row, Slice* found) noexcept nogil:
    """Take the value of a row within the column; return 0, or OUTSIDE_DATA if its offsets point outside of the data."""
    cdef int64_t start, stop
    if column.valid != NULL and not column.valid[row]:
        found.start, found.length = NULL, -1
        return 0
    if column.offsets32 != NULL:
        start, stop = column.offsets32[row], column.offsets32[row + 1]
    else:
        start, stop = column.offsets64[row], column.offsets64[row + 1]
    if start < 0 or stop < start or stop > column.size:
        return OUTSIDE_DATA
    found.start, found.length = column.data + start, stop - start
    return 0


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int varint_size(int64_t value) noexcept nogil:
    return unsigned_varint_size(zigzag(value))


cdef inline int64_t field_size(const Slice* field) noexcept nogil:
    return varint_size(field.length) + (field.length if field.length > 0 else 0)


cdef inline uint8_t* put_varint(uint8_t* out, int64_t value) noexcept nogil:
    cdef uint64_t rest = zigzag(value)
    while rest >= 0x80:
        out[0] = <uint8_t>(rest | 0x80)
        rest >>= 7
        out += 1
    out[0] = <uint8_t>rest
    return out + 1


cdef inline uint8_t* put_field(uint8_t* out, const Slice* field) noexcept nogil:
    out = put_varint(out, field.length)
    if field.length > 0:
        memcpy(out, field.start, field.length)
        out += field.length
    return out


cdef inline int point_into(column, Values* values) except -1:
    """Set the pointers of a `BinaryColumn`, which must live as long as they are used; returns 0."""
    cdef const uint8_t[::1] data = column.data
    cdef const uint8_t[::1] valid
    cdef const int32_t[::1] offsets32
    cdef const int64_t[::1] offsets64
    values.data, values.size = (&data[0] if data.shape[0] else NULL), data.shape[0]
    values.offsets32, values.offsets64, values.valid = NULL, NULL, NULL
    values.count = len(column)
    if len(column.offsets) != values.count + 1:
        raise ValueError("a column must have one offset more than rows")
    if column.offsets.dtype.itemsize == 4:
        offsets32 = column.offsets
        values.offsets32 = &offsets32[0]
    else:
        offsets64 = column.offsets
        values.offsets64 = &offsets64[0]
    if column.valid is not None and values.count:
        valid = column.valid.view("uint8")
        if valid.shape[0] != values.count:
            raise ValueError("the validity of a column must have one entry per row")
        values.valid = &valid[0]
    return 0
