# cython: language_level=3
"""The compiled decoder's view of its program and the bytes of a row, and the reading of varints."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from spark_producer.kernel.growing_columns cimport GOOD, Store

cdef enum Code:
    DO_NULL = 0
    DO_INT = 1
    DO_LONG = 2
    DO_FLOAT = 3
    DO_DOUBLE = 4
    DO_BOOLEAN = 5
    DO_BYTES = 6
    DO_FIXED = 7
    DO_ENUM = 8
    DO_RECORD = 9
    DO_ARRAY = 10
    DO_UNION = 11
    DO_MEMBER = 12
    DO_ABSENT = 13
    DO_DEFAULT = 14
    DO_FAIL = 15

cdef enum:
    TRUNCATED = 1
    TRAILING = 2
    VARINT = 3
    NOT_INT = 4
    LENGTH = 5
    BRANCH = 6
    SYMBOL = 7
    NOT_BOOLEAN = 8
    ITEMS = 9
    NESTING = 10
    TIME = 11
    SCHEMA = 12

cdef struct Operation:
    int code
    int column
    int children
    const int* first_child
    int64_t width
    int64_t factor
    int64_t divisor
    const uint8_t* constant
    int64_t constant_size

cdef struct Decoder:
    const Operation* ops
    Store store
    const uint8_t* at
    const uint8_t* end
    int64_t items_left
    int depth
    int op


cdef inline int read_long_slowly(Decoder* decoder, int64_t* out) noexcept nogil:
    cdef uint64_t found = 0
    cdef uint8_t byte
    cdef int shift = 0
    while True:
        if decoder.at == decoder.end:
            return TRUNCATED
        byte = decoder.at[0]
        decoder.at += 1
        if shift == 63 and byte > 1:
            return VARINT
        found |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            out[0] = <int64_t>(found >> 1) ^ -<int64_t>(found & 1)
            return GOOD
        shift += 7


cdef inline int read_long(Decoder* decoder, int64_t* out) noexcept nogil:
    cdef uint8_t byte
    if decoder.at < decoder.end and decoder.at[0] < 0x80:
        byte = decoder.at[0]
        decoder.at += 1
        out[0] = <int64_t>(byte >> 1) ^ -<int64_t>(byte & 1)
        return GOOD
    return read_long_slowly(decoder, out)


cdef inline int read_length(Decoder* decoder, int64_t* out) noexcept nogil:
    cdef int failed = read_long(decoder, out)
    if failed:
        return failed
    return LENGTH if out[0] < 0 else GOOD
