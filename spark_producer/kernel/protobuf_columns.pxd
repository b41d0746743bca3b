# cython: language_level=3
"""The columns of the compiled Protobuf decoder, which grow at their end; their last values belong to the decoded message."""

from libc.stdint cimport INT32_MAX, int32_t, int64_t
from libc.string cimport memcpy

from spark_producer.kernel.growing_columns cimport (
    FULL, GOOD, IN_ARRAY, IN_BYTES, IN_RECORD, Column, Store, append_bytes, begin_value,
)


cdef inline int begin(Store* store, int column) noexcept nogil:
    """Append the value of an absent field."""
    cdef Column* target = &store.columns[column]
    cdef int64_t length = store.counts[column].length
    cdef int index, failed = begin_value(store, column, 0)
    if failed:
        return failed
    if target.storage == IN_BYTES:
        return append_bytes(store, column, target.absent, target.absent_size)
    if target.storage == IN_ARRAY:
        (<int32_t*>target.values)[length + 1] = <int32_t>store.counts[column].size
    elif target.storage == IN_RECORD:
        for index in range(target.children):
            failed = begin(store, target.first_child[index])
            if failed:
                return failed
    elif target.item == 8:
        memcpy(target.values + 8 * length, target.absent, 8)
    else:
        memcpy(target.values + target.item * length, target.absent, target.item)
    return GOOD


cdef inline void cut(Store* store, int column, int64_t length) noexcept nogil:
    """Remove all values from the one numbered `length` on."""
    cdef Column* target = &store.columns[column]
    cdef int index
    store.counts[column].length = length
    if target.storage == IN_BYTES:
        store.counts[column].size = (<int32_t*>target.values)[length]
    elif target.storage == IN_ARRAY:
        keep_items(store, column, (<int32_t*>target.values)[length])
    elif target.storage == IN_RECORD:
        for index in range(target.children):
            cut(store, target.first_child[index], length)


cdef inline void keep_items(Store* store, int column, int64_t count) noexcept nogil:
    """Remove all items from the one numbered `count` on; they are those of the last list."""
    cdef Column* target = &store.columns[column]
    cdef int index
    store.counts[column].size = count
    (<int32_t*>target.values)[store.counts[column].length] = <int32_t>count
    for index in range(target.children):
        cut(store, target.first_child[index], count)


cdef inline int clear(Store* store, int column) noexcept nogil:
    """Replace the last value by that of an absent field."""
    cdef Column* target = &store.columns[column]
    cdef int64_t last = store.counts[column].length - 1
    cdef int index, failed
    if target.nullable:
        target.valid[last] = 0
    if target.storage == IN_BYTES:
        store.counts[column].size = (<int32_t*>target.values)[last]
        return append_bytes(store, column, target.absent, target.absent_size)
    if target.storage == IN_ARRAY:
        keep_items(store, column, (<int32_t*>target.values)[last])
    elif target.storage == IN_RECORD:
        for index in range(target.children):
            failed = clear(store, target.first_child[index])
            if failed:
                return failed
    else:
        memcpy(target.values + target.item * last, target.absent, target.item)
    return GOOD


cdef inline int begin_item(Store* store, int column) noexcept nogil:
    """Append an item to the last list or map."""
    cdef Column* target = &store.columns[column]
    cdef int64_t size = store.counts[column].size + 1
    cdef int index, failed
    if size > INT32_MAX:
        return FULL
    store.counts[column].size = size
    (<int32_t*>target.values)[store.counts[column].length] = <int32_t>size
    for index in range(target.children):
        failed = begin(store, target.first_child[index])
        if failed:
            return failed
    return GOOD
