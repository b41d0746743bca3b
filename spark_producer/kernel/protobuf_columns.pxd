# cython: language_level=3
"""The columns of the compiled Protobuf decoder, which grow at their end; their last values belong to the decoded message."""

from cpython.bytearray cimport PyByteArray_AsString, PyByteArray_Resize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from spark_producer.kernel.protobuf_decoder cimport (
    FULL, GOOD, IN_ARRAY, IN_BYTES, IN_RECORD, NO_MEMORY, Column, Counts, Decoder,
)


cdef inline int resize(object memory, uint8_t** start, int64_t size) except -1:
    PyByteArray_Resize(memory, size)
    start[0] = <uint8_t*>PyByteArray_AsString(memory)
    return 0


cdef inline int enlarge(Decoder* decoder, int column, int64_t capacity) noexcept with gil:
    """Make memory for `capacity` values of a column."""
    cdef Column* target = &decoder.columns[column]
    cdef list memory = <list>decoder.memory
    try:
        if target.nullable:
            resize(memory[3 * column], &target.valid, capacity)
        resize(memory[3 * column + 1], &target.values, (capacity + 1) * target.item)
    except MemoryError:
        return NO_MEMORY
    target.capacity = capacity
    return GOOD


cdef inline int enlarge_data(Decoder* decoder, int column, int64_t capacity) noexcept with gil:
    cdef Column* target = &decoder.columns[column]
    try:
        resize((<list>decoder.memory)[3 * column + 2], &target.data, capacity)
    except MemoryError:
        return NO_MEMORY
    target.data_capacity = capacity
    return GOOD


cdef inline int append_bytes(Decoder* decoder, int column, const uint8_t* content, int64_t length) noexcept nogil:
    """Append bytes to the last value of a column."""
    cdef Column* target = &decoder.columns[column]
    cdef int64_t size = decoder.counts[column].size
    cdef int failed
    if size + length > INT32_MAX:
        return FULL
    if size + length > target.data_capacity:
        failed = enlarge_data(decoder, column, min(2 * (size + length) + 64, <int64_t>INT32_MAX))
        if failed:
            return failed
    if length:
        memcpy(target.data + size, content, length)
    size += length
    decoder.counts[column].size = size
    (<int32_t*>target.values)[decoder.counts[column].length] = <int32_t>size
    return GOOD


cdef inline int begin(Decoder* decoder, int column) noexcept nogil:
    """Append the value of an absent field."""
    cdef Column* target = &decoder.columns[column]
    cdef int64_t length = decoder.counts[column].length
    cdef int index, failed
    if length >= target.capacity:
        if length >= INT32_MAX:
            return FULL
        failed = enlarge(decoder, column, 2 * length + 16)
        if failed:
            return failed
    if target.nullable:
        target.valid[length] = 0
    decoder.counts[column].length = length + 1
    if target.storage == IN_BYTES:
        return append_bytes(decoder, column, target.absent, target.absent_size)
    if target.storage == IN_ARRAY:
        (<int32_t*>target.values)[length + 1] = <int32_t>decoder.counts[column].size
    elif target.storage == IN_RECORD:
        for index in range(target.children):
            failed = begin(decoder, target.first_child[index])
            if failed:
                return failed
    elif target.item == 8:
        memcpy(target.values + 8 * length, target.absent, 8)
    else:
        memcpy(target.values + target.item * length, target.absent, target.item)
    return GOOD


cdef inline void cut(Decoder* decoder, int column, int64_t length) noexcept nogil:
    """Remove all values from the one numbered `length` on."""
    cdef Column* target = &decoder.columns[column]
    cdef int index
    decoder.counts[column].length = length
    if target.storage == IN_BYTES:
        decoder.counts[column].size = (<int32_t*>target.values)[length]
    elif target.storage == IN_ARRAY:
        keep_items(decoder, column, (<int32_t*>target.values)[length])
    elif target.storage == IN_RECORD:
        for index in range(target.children):
            cut(decoder, target.first_child[index], length)


cdef inline void keep_items(Decoder* decoder, int column, int64_t count) noexcept nogil:
    """Remove all items from the one numbered `count` on; they are those of the last list."""
    cdef Column* target = &decoder.columns[column]
    cdef int index
    decoder.counts[column].size = count
    (<int32_t*>target.values)[decoder.counts[column].length] = <int32_t>count
    for index in range(target.children):
        cut(decoder, target.first_child[index], count)


cdef inline int clear(Decoder* decoder, int column) noexcept nogil:
    """Replace the last value by that of an absent field."""
    cdef Column* target = &decoder.columns[column]
    cdef int64_t last = decoder.counts[column].length - 1
    cdef int index, failed
    if target.nullable:
        target.valid[last] = 0
    if target.storage == IN_BYTES:
        decoder.counts[column].size = (<int32_t*>target.values)[last]
        return append_bytes(decoder, column, target.absent, target.absent_size)
    if target.storage == IN_ARRAY:
        keep_items(decoder, column, (<int32_t*>target.values)[last])
    elif target.storage == IN_RECORD:
        for index in range(target.children):
            failed = clear(decoder, target.first_child[index])
            if failed:
                return failed
    else:
        memcpy(target.values + target.item * last, target.absent, target.item)
    return GOOD


cdef inline int begin_item(Decoder* decoder, int column) noexcept nogil:
    """Append an item to the last list or map."""
    cdef Column* target = &decoder.columns[column]
    cdef int64_t size = decoder.counts[column].size + 1
    cdef int index, failed
    if size > INT32_MAX:
        return FULL
    decoder.counts[column].size = size
    (<int32_t*>target.values)[decoder.counts[column].length] = <int32_t>size
    for index in range(target.children):
        failed = begin(decoder, target.first_child[index])
        if failed:
            return failed
    return GOOD
