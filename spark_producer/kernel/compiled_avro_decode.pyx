# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled decoder of Avro, which does what `avro_decode.decode_avro` does without the GIL, with equal results.

It goes over the rows once. Each column grows in bytearrays, which become the memory of the result. Programs come from our own
code, and their numbers are checked before the first row; the bytes of rows are never trusted.
"""

from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

import numpy as np

from spark_producer.kernel.avro_program import (
    ITEM_TYPES,
    ITEMS_WITHOUT_BYTES,
    MAX_NESTING,
    MAX_OFFSET,
    NO_COLUMN,
    TOO_MUCH,
    Failure,
    OpCode,
    Reason,
    Storage,
    raw_columns,
)

from spark_producer.kernel.avro_decoder cimport (
    BRANCH, DO_ABSENT, DO_ARRAY, DO_BOOLEAN, DO_BYTES, DO_DEFAULT, DO_DOUBLE, DO_ENUM, DO_FAIL, DO_FIXED, DO_FLOAT, DO_INT,
    DO_LONG, DO_MEMBER, DO_NULL, DO_RECORD, DO_UNION, ITEMS, NESTING, NOT_BOOLEAN, NOT_INT, SCHEMA, SYMBOL, TIME, TRAILING,
    TRUNCATED, Decoder, Operation, read_length, read_long,
)
from spark_producer.kernel.growing_columns cimport (
    FULL, GOOD, IN_ARRAY, IN_BYTES, IN_DOUBLE, IN_LONG, IN_NOTHING, IN_RECORD, NO_MEMORY, Column, Counts, append_bytes,
    begin_value, cut_memory, make_columns,
)

assert tuple(OpCode) == tuple(range(DO_NULL, DO_FAIL + 1))
assert tuple(Storage) == tuple(range(IN_NOTHING, IN_ARRAY + 1))
assert tuple(Reason) == tuple(range(TRUNCATED, SCHEMA + 1))
assert MAX_OFFSET == INT32_MAX

cdef int MAX_DEPTH = MAX_NESTING
cdef int64_t FREE_ITEMS = ITEMS_WITHOUT_BYTES

cdef int put_null(Decoder* decoder, int column) noexcept nogil:
    """Add a null, or what lies below one."""
    cdef Column* target = &decoder.store.columns[column]
    cdef int index, failed = begin_value(&decoder.store, column, 0)
    cdef int64_t length = decoder.store.counts[column].length
    if failed:
        return failed
    if target.storage == IN_BYTES or target.storage == IN_ARRAY:
        (<int32_t*>target.values)[length] = <int32_t>decoder.store.counts[column].size
    elif target.storage == IN_RECORD:
        for index in range(target.children):
            failed = put_null(decoder, target.first_child[index])
            if failed:
                return failed
    elif target.storage != IN_NOTHING:
        memset(target.values + (length - 1) * target.item, 0, target.item)
    return GOOD


cdef inline int put_long(Decoder* decoder, const Operation* op, int64_t found) noexcept nogil:
    cdef Column* target = &decoder.store.columns[op.column]
    cdef int64_t place, scaled
    cdef int failed
    if op.divisor != 1:
        scaled = found / op.divisor
        found = scaled - (1 if found % op.divisor < 0 else 0)
    if op.factor != 1:
        if found > INT64_MAX / op.factor or found < INT64_MIN / op.factor:
            return TIME
        found *= op.factor
    failed = begin_value(&decoder.store, op.column, 1)
    if failed:
        return failed
    place = decoder.store.counts[op.column].length - 1
    if target.storage == IN_LONG:
        (<int64_t*>target.values)[place] = found
    elif target.storage == IN_DOUBLE:
        (<double*>target.values)[place] = <double>found
    else:
        (<float*>target.values)[place] = <float>found
    return GOOD


cdef inline int run_real(Decoder* decoder, const Operation* op) noexcept nogil:
    cdef int64_t width = 4 if op.code == DO_FLOAT else 8
    cdef const uint8_t* start = decoder.at
    cdef Column* target
    cdef float single
    cdef double found
    cdef int failed
    if decoder.end - start < width:
        return TRUNCATED
    decoder.at += width
    if op.column < 0:
        return GOOD
    target = &decoder.store.columns[op.column]
    failed = begin_value(&decoder.store, op.column, 1)
    if failed:
        return failed
    if target.item == width:
        memcpy(target.values + (decoder.store.counts[op.column].length - 1) * width, start, width)
    else:
        memcpy(&single, start, 4)
        found = single
        memcpy(target.values + (decoder.store.counts[op.column].length - 1) * 8, &found, 8)
    return GOOD


cdef inline int run_bytes(Decoder* decoder, const Operation* op) noexcept nogil:
    cdef int64_t length = op.width
    cdef int failed
    if op.code == DO_BYTES:
        failed = read_length(decoder, &length)
        if failed:
            return failed
    if decoder.end - decoder.at < length:
        return TRUNCATED
    if op.column >= 0:
        failed = begin_value(&decoder.store, op.column, 1)
        if failed:
            return failed
        failed = append_bytes(&decoder.store, op.column, decoder.at, length)
        if failed:
            return failed
    decoder.at += length
    return GOOD


cdef int run_array(Decoder* decoder, const Operation* op, int number) noexcept nogil:
    cdef int64_t count, size, item
    cdef int failed, child
    decoder.depth += 1
    if decoder.depth > MAX_DEPTH:
        return NESTING
    while True:
        failed = read_long(decoder, &count)
        if failed:
            return failed
        if count == 0:
            break
        size = -1
        if count < 0:
            failed = read_length(decoder, &size)
            if failed:
                return failed
            count = INT64_MAX if count == INT64_MIN else -count
        if count > decoder.items_left:
            return ITEMS
        decoder.items_left -= count
        if op.column < 0 and size >= 0:
            if decoder.end - decoder.at < size:
                return TRUNCATED
            decoder.at += size
            continue
        for item in range(count):
            for child in range(op.children):
                failed = run(decoder, op.first_child[child])
                if failed:
                    return failed
            decoder.op = number
        if op.column >= 0:
            decoder.store.counts[op.column].size += count
            if decoder.store.counts[op.column].size > INT32_MAX:
                return FULL
    decoder.depth -= 1
    if op.column >= 0:
        failed = begin_value(&decoder.store, op.column, 1)
        if failed:
            return failed
        (<int32_t*>decoder.store.columns[op.column].values)[decoder.store.counts[op.column].length] = <int32_t>decoder.store.counts[op.column].size
    return GOOD


cdef int run_record(Decoder* decoder, const Operation* op) noexcept nogil:
    cdef int failed, index
    decoder.depth += 1
    if decoder.depth > MAX_DEPTH:
        return NESTING
    if op.column >= 0:
        failed = begin_value(&decoder.store, op.column, 1)
        if failed:
            return failed
    for index in range(op.children):
        failed = run(decoder, op.first_child[index])
        if failed:
            return failed
    decoder.depth -= 1
    return GOOD


cdef int run_member(Decoder* decoder, const Operation* op) noexcept nogil:
    cdef Column* target = &decoder.store.columns[op.column]
    cdef int index, failed = begin_value(&decoder.store, op.column, 1)
    if failed:
        return failed
    for index in range(target.children):
        if index != op.width:
            failed = put_null(decoder, target.first_child[index])
            if failed:
                return failed
    return run(decoder, op.first_child[0])


cdef int run_choice(Decoder* decoder, const Operation* op) noexcept nogil:
    """Decode an enum or a union."""
    cdef int64_t index
    cdef int failed = read_long(decoder, &index)
    if failed:
        return failed
    if index < 0 or index >= op.children:
        return SYMBOL if op.code == DO_ENUM else BRANCH
    if op.code == DO_UNION:
        return run(decoder, op.first_child[index])
    if op.column < 0:
        return GOOD
    if op.first_child[index] < 0:
        return SCHEMA
    return put_long(decoder, op, op.first_child[index])


cdef int run_boolean(Decoder* decoder, const Operation* op) noexcept nogil:
    cdef int failed
    cdef uint8_t found
    if decoder.at == decoder.end:
        return TRUNCATED
    found = decoder.at[0]
    decoder.at += 1
    if found > 1:
        return NOT_BOOLEAN
    if op.column >= 0:
        failed = begin_value(&decoder.store, op.column, 1)
        if failed:
            return failed
        decoder.store.columns[op.column].values[decoder.store.counts[op.column].length - 1] = found
    return GOOD


cdef int run_default(Decoder* decoder, const Operation* op) noexcept nogil:
    """Decode the default of a field that the writer's schema lacks."""
    cdef const uint8_t* at = decoder.at
    cdef const uint8_t* end = decoder.end
    cdef int failed
    decoder.at, decoder.end = op.constant, op.constant + op.constant_size
    failed = run(decoder, op.first_child[0])
    decoder.at, decoder.end = at, end
    return failed


cdef int run(Decoder* decoder, int number) noexcept nogil:
    """Decode one value; return GOOD or the reason why it cannot be decoded."""
    cdef const Operation* op = &decoder.ops[number]
    cdef int64_t found
    cdef int failed
    decoder.op = number
    if op.code == DO_LONG or op.code == DO_INT:
        failed = read_long(decoder, &found)
        if failed:
            return failed
        if op.code == DO_INT and (found > INT32_MAX or found < INT32_MIN):
            return NOT_INT
        return put_long(decoder, op, found) if op.column >= 0 else GOOD
    if op.code == DO_BYTES or op.code == DO_FIXED:
        return run_bytes(decoder, op)
    if op.code == DO_UNION or op.code == DO_ENUM:
        return run_choice(decoder, op)
    if op.code == DO_ABSENT:
        return put_null(decoder, op.column) if op.column >= 0 else GOOD
    if op.code == DO_DOUBLE or op.code == DO_FLOAT:
        return run_real(decoder, op)
    if op.code == DO_RECORD:
        return run_record(decoder, op)
    if op.code == DO_ARRAY:
        return run_array(decoder, op, number)
    if op.code == DO_BOOLEAN:
        return run_boolean(decoder, op)
    if op.code == DO_DEFAULT:
        return run_default(decoder, op)
    if op.code == DO_MEMBER:
        return run_member(decoder, op)
    if op.code == DO_NULL:
        return begin_value(&decoder.store, op.column, 1) if op.column >= 0 else GOOD
    return SCHEMA


cdef int require(bint holds) except -1:
    if not holds:
        raise ValueError("the program of an Avro column is damaged")
    return 0


cdef int fill_operation(Operation* op, object source, const int* children, int ops, int columns) except -1:
    op.code, op.column, op.width = source.code, source.column, source.width
    op.factor, op.divisor = source.factor, source.divisor
    op.first_child, op.children = children, len(source.children)
    cdef bytes constant = source.constant  # the program holds it
    op.constant, op.constant_size = constant, len(constant)
    require(NO_COLUMN <= op.column < columns and op.width >= 0 and op.factor > 0 and op.divisor > 0)
    if op.code != DO_ENUM:
        require(all(0 <= child < ops for child in source.children))
    return 0


cdef int fill_column(Column* column, object plan, const int* children, int columns) except -1:
    column.storage, column.item = plan.storage, ITEM_TYPES[plan.storage].itemsize
    column.nullable = plan.nullable
    column.first_child, column.children = children, len(plan.children)
    require(all(0 < child < columns for child in plan.children))
    return 0


def decode_avro(program, data, starts, ends):
    """Decode rows; see `avro_decode.decode_avro`."""
    cdef const int64_t[::1] firsts = np.ascontiguousarray(starts, dtype=np.int64)
    cdef const int64_t[::1] lasts = np.ascontiguousarray(ends, dtype=np.int64)
    cdef const uint8_t[::1] content = np.ascontiguousarray(data)
    cdef int64_t row = 0, rows = firsts.shape[0], size = content.shape[0]
    cdef int ops = len(program.ops), columns = len(program.columns), index, failed = GOOD, first = program.first
    cdef const uint8_t* base = &content[0] if size else NULL
    cdef Decoder decoder
    if rows != lasts.shape[0] or (
        rows and (starts.min() < 0 or ends.max() > size or (starts > ends).any())
    ):
        raise ValueError("the positions of Avro values are wrong: the input is damaged")
    require(0 <= first < ops and columns > 0)
    edges = [child for each in (*program.ops, *program.columns) for child in each.children]
    cdef const int[::1] children = np.array([*edges, 0], dtype=np.intc)
    cdef Operation* table = <Operation*>calloc(ops, sizeof(Operation))
    cdef Column* targets = <Column*>calloc(columns, sizeof(Column))
    cdef Counts* counts = <Counts*>calloc(2 * columns, sizeof(Counts))
    cdef Counts* saved = counts + columns
    cdef list memory = [bytearray() for _ in range(3 * columns)]
    cdef list failures = []
    try:
        if table == NULL or targets == NULL or counts == NULL:
            raise MemoryError
        at = 0
        for index, each in enumerate(program.ops):
            fill_operation(&table[index], each, &children[at], ops, columns)
            at += len(each.children)
        for index, each in enumerate(program.columns):
            fill_column(&targets[index], each, &children[at], columns)
            at += len(each.children)
        decoder.ops = table
        decoder.store.columns, decoder.store.counts, decoder.store.memory = targets, counts, <void*>memory
        make_columns(&decoder.store, columns, rows)
        while row < rows:
            with nogil:
                while row < rows:
                    memcpy(saved, counts, columns * sizeof(Counts))
                    decoder.at, decoder.end = base + firsts[row], base + lasts[row]
                    decoder.items_left, decoder.depth = lasts[row] - firsts[row] + FREE_ITEMS, 0
                    failed = run(&decoder, first)
                    if failed == GOOD and decoder.at != decoder.end:
                        failed, decoder.op = TRAILING, first
                    if failed != GOOD:
                        break
                    row += 1
            if failed != GOOD:
                if failed == FULL:
                    raise OverflowError(TOO_MUCH)
                if failed == NO_MEMORY:
                    raise MemoryError
                failures.append(Failure(row, failed, decoder.at - base - firsts[row], decoder.op))
                memcpy(counts, saved, columns * sizeof(Counts))
                row, failed = row + 1, GOOD
        for index in range(columns):
            cut_memory(&decoder.store, index)
        return raw_columns(program.columns, memory, [counts[index].length for index in range(columns)]), failures
    finally:
        free(table)
        free(targets)
        free(counts)
