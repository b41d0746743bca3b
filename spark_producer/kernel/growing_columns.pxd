# cython: language_level=3
"""The columns of the compiled decoders of Avro and Protobuf, which grow at their end in bytearrays."""

from cpython.bytearray cimport PyByteArray_AsString, PyByteArray_Resize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

cdef enum Stored:
    IN_NOTHING = 0
    IN_LONG = 1
    IN_FLOAT = 2
    IN_DOUBLE = 3
    IN_BOOLEAN = 4
    IN_BYTES = 5
    IN_RECORD = 6
    IN_ARRAY = 7

cdef enum:  # beside the reasons of a decoder, which lie between
    GOOD = 0
    FULL = 100  # a column would have more than 2 GiB
    NO_MEMORY = 101

cdef struct Column:
    int storage
    int item  # bytes of one of `values`
    int children
    bint nullable
    const int* first_child
    const uint8_t* absent  # of Protobuf: the value of an absent field
    int64_t absent_size
    int64_t filled  # of Protobuf: the values that an item begins with
    int64_t capacity  # values for which there is memory
    int64_t data_capacity
    uint8_t* valid
    uint8_t* values
    uint8_t* data

cdef struct Counts:
    int64_t length
    int64_t size  # the bytes of `data`, or the items of a list

cdef struct Store:
    Column* columns
    Counts* counts
    void* memory  # the list of the bytearrays: valid, values and data of each column


cdef inline int resize(object memory, uint8_t** start, int64_t size) except -1:
    PyByteArray_Resize(memory, size)
    start[0] = <uint8_t*>PyByteArray_AsString(memory)
    return 0


cdef inline int enlarge(Store* store, int column, int64_t capacity) noexcept with gil:
    """Make memory for `capacity` values of a column."""
    cdef Column* target = &store.columns[column]
    cdef list memory = <list>store.memory
    try:
        if target.nullable:
            resize(memory[3 * column], &target.valid, capacity)
        resize(memory[3 * column + 1], &target.values, (capacity + 1) * target.item)
    except MemoryError:
        return NO_MEMORY
    target.capacity = capacity
    return GOOD


cdef inline int enlarge_data(Store* store, int column, int64_t capacity) noexcept with gil:
    cdef Column* target = &store.columns[column]
    try:
        resize((<list>store.memory)[3 * column + 2], &target.data, capacity)
    except MemoryError:
        return NO_MEMORY
    target.data_capacity = capacity
    return GOOD


cdef inline int begin_value(Store* store, int column, uint8_t valid) noexcept nogil:
    """Begin a value, for which there is memory then; the caller stores it at `length - 1`."""
    cdef Column* target = &store.columns[column]
    cdef int64_t length = store.counts[column].length
    cdef int failed
    if length >= target.capacity:
        if length >= INT32_MAX:
            return FULL
        failed = enlarge(store, column, 2 * length + 16)
        if failed:
            return failed
    if target.nullable:
        target.valid[length] = valid
    store.counts[column].length = length + 1
    return GOOD


cdef inline int append_bytes(Store* store, int column, const uint8_t* content, int64_t length) noexcept nogil:
    """Append bytes to the last value of a column."""
    cdef Column* target = &store.columns[column]
    cdef int64_t size = store.counts[column].size
    cdef int failed
    if size + length > INT32_MAX:
        return FULL
    if size + length > target.data_capacity:
        failed = enlarge_data(store, column, min(2 * (size + length) + 64, <int64_t>INT32_MAX))
        if failed:
            return failed
    if length:
        memcpy(target.data + size, content, length)
    size += length
    store.counts[column].size = size
    (<int32_t*>target.values)[store.counts[column].length] = <int32_t>size
    return GOOD


cdef inline int make_columns(Store* store, int columns, int64_t rows) except -1:
    """Make memory for a value of each row in every column."""
    cdef int index
    for index in range(columns):
        if enlarge(store, index, rows) == NO_MEMORY:
            raise MemoryError
        if store.columns[index].storage == IN_BYTES or store.columns[index].storage == IN_ARRAY:
            (<int32_t*>store.columns[index].values)[0] = 0
    return 0


cdef inline int cut_memory(Store* store, int column) except -1:
    """Cut the bytearrays of a column to what they have."""
    cdef Column* target = &store.columns[column]
    cdef int64_t length = store.counts[column].length
    cdef list memory = <list>store.memory
    offsets = target.storage == IN_BYTES or target.storage == IN_ARRAY
    stored = target.storage != IN_NOTHING and target.storage != IN_RECORD
    PyByteArray_Resize(memory[3 * column], length if target.nullable else 0)
    PyByteArray_Resize(memory[3 * column + 1], (length + offsets) * target.item if stored else 0)
    PyByteArray_Resize(memory[3 * column + 2], store.counts[column].size if target.storage == IN_BYTES else 0)
    return 0
