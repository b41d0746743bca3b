# cython: language_level=3
"""The compiled Protobuf decoder's view of its program and the bytes of a row, and the reading of varints."""

from libc.stdint cimport INT32_MAX, UINT32_MAX, int32_t, int64_t, uint8_t, uint64_t

from spark_producer.kernel.growing_columns cimport GOOD, Store

cdef enum Wire:
    WIRE_VARINT = 0
    WIRE_FIXED64 = 1
    WIRE_BYTES = 2
    WIRE_START = 3
    WIRE_END = 4
    WIRE_FIXED32 = 5

cdef enum Written:
    AS_INT32 = 0
    AS_INT64 = 1
    AS_UINT32 = 2
    AS_SINT32 = 3
    AS_SINT64 = 4
    AS_BOOL = 5
    AS_FIXED32 = 6
    AS_SFIXED32 = 7
    AS_FLOAT = 8
    AS_FIXED64 = 9
    AS_DOUBLE = 10
    AS_BYTES = 11
    AS_MESSAGE = 12
    AS_GROUP = 13

cdef enum:
    TRUNCATED = 1
    VARINT = 2
    TAG = 3
    LENGTH = 4
    GROUP = 5
    NESTING = 6
    ITEMS = 7

cdef enum Bounds:
    VARINT_BYTES = 10
    TAG_BYTES = 5

cdef struct Entry:  # a field
    int64_t number
    int form
    int wire
    int column
    int target  # the column of its values: that of an item if it is repeated
    int message
    bint repeated
    int rivals
    const int* first_rival
    int known
    const int* first_known

cdef struct Layout:  # a message
    int column
    int fields
    const Entry* first_field

cdef struct Decoder:
    const Layout* messages
    Store store
    const uint8_t* at
    const uint8_t* end
    int64_t values_left
    int depth
    int column  # that of the field that is decoded
    bint unknown_symbol


cdef inline int read_slowly(Decoder* decoder, uint64_t* out, int limit, int reason) noexcept nogil:
    cdef uint64_t found = 0
    cdef uint8_t byte
    cdef int index
    for index in range(limit):
        if decoder.at == decoder.end:
            return TRUNCATED
        byte = decoder.at[0]
        decoder.at += 1
        found |= <uint64_t>(byte & 0x7F) << (7 * index)
        if byte < 0x80:
            out[0] = found
            return GOOD
    return reason


cdef inline int read_varint(Decoder* decoder, uint64_t* out) noexcept nogil:
    if decoder.at < decoder.end and decoder.at[0] < 0x80:
        out[0] = decoder.at[0]
        decoder.at += 1
        return GOOD
    return read_slowly(decoder, out, VARINT_BYTES, VARINT)


cdef inline int read_tag(Decoder* decoder, int64_t* number, int* wire) noexcept nogil:
    cdef uint64_t tag
    cdef int failed
    if decoder.at < decoder.end and decoder.at[0] < 0x80:
        tag = decoder.at[0]
        decoder.at += 1
    else:
        failed = read_slowly(decoder, &tag, TAG_BYTES, TAG)
        if failed:
            return failed
    if tag < 8 or tag > UINT32_MAX or (tag & 7) > WIRE_FIXED32:
        return TAG
    number[0], wire[0] = <int64_t>(tag >> 3), <int>(tag & 7)
    return GOOD


cdef inline int read_length(Decoder* decoder, int64_t* out) noexcept nogil:
    cdef uint64_t found
    cdef int failed
    if decoder.at < decoder.end and decoder.at[0] < 0x80:
        out[0] = decoder.at[0]
        decoder.at += 1
        return GOOD
    failed = read_slowly(decoder, &found, TAG_BYTES, LENGTH)
    if failed:
        return failed
    if found > <uint64_t>INT32_MAX:
        return LENGTH
    out[0] = <int64_t>found
    return GOOD
