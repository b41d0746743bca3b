# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled decoder of Protobuf, which does what `protobuf_decode.decode_protobuf` does without the GIL, with equal results.

It goes over the rows once. Each column grows in bytearrays, which become the memory of the result. Programs come from our own
code, and their numbers are checked before the first row; the bytes of rows are never trusted.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

import numpy as np

from spark_producer.kernel.avro_program import ITEM_TYPES, MAX_OFFSET, TOO_MUCH, Failure, Storage, raw_columns
from spark_producer.kernel.protobuf_program import (
    FREE_VALUES,
    MAX_DEPTH,
    NO_MESSAGE,
    VALUES_PER_BYTE,
    WIRE_TYPES,
    Form,
    ProtobufReason,
    WireType,
    filled_values,
)

from spark_producer.kernel.growing_columns cimport (
    FULL, GOOD, IN_ARRAY, IN_BYTES, IN_NOTHING, IN_RECORD, NO_MEMORY, Column, Counts, append_bytes, cut_memory, make_columns,
)
from spark_producer.kernel.protobuf_columns cimport begin, begin_item, clear, cut, keep_items
from spark_producer.kernel.protobuf_decoder cimport (
    AS_BOOL, AS_BYTES, AS_DOUBLE, AS_FIXED32, AS_FIXED64, AS_FLOAT, AS_GROUP, AS_INT32, AS_INT64, AS_MESSAGE, AS_SFIXED32,
    AS_SINT32, AS_SINT64, AS_UINT32, GROUP, ITEMS, NESTING, TRUNCATED, WIRE_BYTES, WIRE_END, WIRE_FIXED32, WIRE_FIXED64, WIRE_START, WIRE_VARINT, Decoder, Entry, Layout, read_length, read_tag, read_varint,
)

assert tuple(Form) == tuple(range(AS_INT32, AS_GROUP + 1))
assert tuple(WireType) == tuple(range(WIRE_VARINT, WIRE_FIXED32 + 1))
assert tuple(Storage) == tuple(range(IN_NOTHING, IN_ARRAY + 1))
assert tuple(ProtobufReason) == tuple(range(TRUNCATED, ITEMS + 1))
assert MAX_OFFSET == INT32_MAX

cdef enum Depths:
    DEPTHS = 100

assert MAX_DEPTH == DEPTHS

cdef int64_t FREE = FREE_VALUES
cdef int64_t PER_BYTE = VALUES_PER_BYTE


cdef inline int make_room(Decoder* decoder, const Entry* field) noexcept nogil:
    """Begin a new item, or clear the fields that exclude this one. The value's place is the last one of `field.target` then."""
    cdef int index, failed, rival
    if field.repeated:
        return begin_item(&decoder.store, field.column)
    for index in range(field.rivals):
        rival = field.first_rival[index]
        if decoder.store.columns[rival].valid[decoder.store.counts[rival].length - 1]:
            decoder.values_left -= decoder.store.columns[rival].filled
            if decoder.values_left < 0:
                return ITEMS
            failed = clear(&decoder.store, rival)
            if failed:
                return failed
    return GOOD


cdef inline int put_bytes(Decoder* decoder, const Entry* field) noexcept nogil:
    cdef Column* target = &decoder.store.columns[field.target]
    cdef const uint8_t* content
    cdef int64_t length, last
    cdef int failed = read_length(decoder, &length)
    if failed:
        return failed
    if decoder.end - decoder.at < length:
        return TRUNCATED
    content = decoder.at
    decoder.at += length
    failed = make_room(decoder, field)
    if failed:
        return failed
    last = decoder.store.counts[field.target].length - 1
    if target.nullable:
        target.valid[last] = 1
    decoder.store.counts[field.target].size = (<int32_t*>target.values)[last]
    return append_bytes(&decoder.store, field.target, content, length)


cdef inline bint is_known(const Entry* field, int64_t number) noexcept nogil:
    cdef int low = 0, high = field.known, middle
    while low < high:
        middle = (low + high) >> 1
        if field.first_known[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low < field.known and field.first_known[low] == number


cdef inline int read_number(Decoder* decoder, const Entry* field, uint64_t* out) noexcept nogil:
    """Read a number into the bits of its column's items."""
    cdef uint64_t found = 0
    cdef uint32_t low
    cdef int width, failed
    if field.wire != WIRE_VARINT:
        width = 8 if field.wire == WIRE_FIXED64 else 4
        if decoder.end - decoder.at < width:
            return TRUNCATED
        memcpy(&found, decoder.at, width)
        decoder.at += width
        if field.form == AS_SFIXED32:
            found = <uint64_t><int64_t><int32_t><uint32_t>found
        out[0] = found
        return GOOD
    failed = read_varint(decoder, &found)
    if failed:
        return failed
    low = <uint32_t>found
    if field.form == AS_INT32:
        found = <uint64_t><int64_t><int32_t>low
    elif field.form == AS_UINT32:
        found = low
    elif field.form == AS_SINT32:
        found = <uint64_t><int64_t><int32_t>((low >> 1) ^ (~(low & 1) + 1))
    elif field.form == AS_SINT64:
        found = (found >> 1) ^ (~(found & 1) + 1)
    elif field.form == AS_BOOL:
        found = found != 0
    out[0] = found
    return GOOD


cdef inline int put_number(Decoder* decoder, const Entry* field) noexcept nogil:
    cdef Column* target = &decoder.store.columns[field.target]
    cdef uint64_t found
    cdef int64_t last
    cdef int failed = read_number(decoder, field, &found)
    if failed:
        return failed
    if field.known and not is_known(field, <int64_t>found):
        decoder.unknown_symbol = True
        return GOOD
    failed = make_room(decoder, field)
    if failed:
        return failed
    last = decoder.store.counts[field.target].length - 1
    if target.nullable:
        target.valid[last] = 1
    if target.item == 8:
        memcpy(target.values + 8 * last, &found, 8)
    else:
        memcpy(target.values + target.item * last, &found, target.item)
    return GOOD


cdef int put_packed(Decoder* decoder, const Entry* field) noexcept nogil:
    cdef const uint8_t* end = decoder.end
    cdef int64_t length
    cdef int failed = read_length(decoder, &length)
    if failed:
        return failed
    if end - decoder.at < length:
        return TRUNCATED
    decoder.end = decoder.at + length
    while decoder.at < decoder.end:
        failed = put_number(decoder, field)
        if failed:
            return failed
    decoder.end = end
    return GOOD


cdef int put_message(Decoder* decoder, const Entry* field) noexcept nogil:
    cdef const uint8_t* end = decoder.end
    cdef Column* target = &decoder.store.columns[field.target]
    cdef int64_t length
    cdef int failed
    decoder.depth += 1
    if decoder.depth > DEPTHS:
        return NESTING
    if field.form == AS_MESSAGE:
        failed = read_length(decoder, &length)
        if failed:
            return failed
        if end - decoder.at < length:
            return TRUNCATED
        decoder.end = decoder.at + length
    if field.repeated:
        decoder.values_left -= decoder.store.columns[field.column].filled
        if decoder.values_left < 0:
            return ITEMS
    failed = make_room(decoder, field)
    if failed:
        return failed
    if not field.repeated and target.nullable:
        target.valid[decoder.store.counts[field.target].length - 1] = 1
    decoder.unknown_symbol = False
    failed = read_message(decoder, field.message, field.number if field.form == AS_GROUP else 0)
    if failed:
        return failed
    decoder.end = end
    decoder.depth -= 1
    if decoder.unknown_symbol and decoder.store.columns[field.column].children == 2 and field.repeated:
        keep_items(&decoder.store, field.column, decoder.store.counts[field.column].size - 1)
    decoder.unknown_symbol = False
    return GOOD


cdef int skip(Decoder* decoder, int64_t number, int wire) noexcept nogil:
    """Skip a field that the program does not have, and all of its group."""
    cdef int64_t groups[DEPTHS]
    cdef int64_t length = 0
    cdef uint64_t found
    cdef int open = 0, failed = GOOD
    while True:
        length = 0
        if wire == WIRE_VARINT:
            failed = read_varint(decoder, &found)
        elif wire == WIRE_BYTES:
            failed = read_length(decoder, &length)
        elif wire == WIRE_START:
            decoder.depth += 1
            if decoder.depth > DEPTHS:
                return NESTING
            groups[open] = number
            open += 1
        elif wire == WIRE_END:
            open -= 1
            if groups[open] != number:
                return GROUP
            decoder.depth -= 1
        else:
            length = 8 if wire == WIRE_FIXED64 else 4
        if failed:
            return failed
        if decoder.end - decoder.at < length:
            return TRUNCATED
        decoder.at += length
        if not open:
            return GOOD
        failed = read_tag(decoder, &number, &wire)
        if failed:
            return failed


cdef inline int find(const Layout* message, int64_t number, int guess) noexcept nogil:
    """Return the index of a field, or -1. Writers mostly write fields in order, so `guess` is nearly always right."""
    cdef int low = 0, high = message.fields, middle
    if guess < high and message.first_field[guess].number == number:
        return guess
    while low < high:
        middle = (low + high) >> 1
        if message.first_field[middle].number < number:
            low = middle + 1
        else:
            high = middle
    return low if low < message.fields and message.first_field[low].number == number else -1


cdef int read_message(Decoder* decoder, int number, int64_t group) noexcept nogil:
    """Decode the fields of a message up to its end, or to that of the group with this number."""
    cdef const Layout* message = &decoder.messages[number]
    cdef const Entry* field
    cdef int64_t tag
    cdef int wire, failed, found = -1
    while True:
        decoder.column = message.column
        if decoder.at == decoder.end:
            return TRUNCATED if group else GOOD
        failed = read_tag(decoder, &tag, &wire)
        if failed:
            return failed
        if wire == WIRE_END:
            return GOOD if tag == group else GROUP
        if found < 0 or message.first_field[found].number != tag:
            found = find(message, tag, found + 1)
        field = &message.first_field[found] if found >= 0 else NULL
        if field == NULL:
            failed = skip(decoder, tag, wire)
        elif field.wire == wire:
            decoder.column = field.column
            if field.form < AS_BYTES:
                failed = put_number(decoder, field)
            elif field.form == AS_BYTES:
                failed = put_bytes(decoder, field)
            else:
                failed = put_message(decoder, field)
        elif wire == WIRE_BYTES and field.repeated and field.form < AS_BYTES:
            decoder.column = field.column
            failed = put_packed(decoder, field)
        else:
            failed = skip(decoder, tag, wire)
        if failed:
            return failed


cdef int require(bint holds) except -1:
    if not holds:
        raise ValueError("the program of a Protobuf column is damaged")
    return 0


cdef int fill_entry(Entry* field, object source, const int* numbers, object program) except -1:
    columns, stored = len(program.columns), 0
    require(0 < source.column < columns)
    plan = program.columns[source.column]
    field.number, field.form, field.wire = source.number, source.form, WIRE_TYPES.get(source.form, WireType.VARINT)
    field.column, field.repeated, field.message = source.column, source.repeated, source.message
    field.first_rival, field.rivals = numbers, len(source.rivals)
    field.first_known, field.known = numbers + field.rivals, len(source.known)
    require(source.repeated == (plan.storage == Storage.ARRAY) and (not source.repeated or len(plan.children) > 0))
    field.target = plan.children[0] if source.repeated else source.column
    inner = source.form in (Form.MESSAGE, Form.GROUP)
    require((0 <= source.message < len(program.messages)) if inner else source.message == NO_MESSAGE)
    require(all(0 < each < columns and program.columns[each].nullable for each in source.rivals))
    if not inner:
        stored = program.columns[field.target].storage
        require(stored == _STORAGES.get(source.form, Storage.LONG))
        require(not source.repeated or len(plan.children) == 1)
    elif not source.repeated:
        require(plan.storage == Storage.RECORD)
    return 0


_STORAGES = {
    Form.BOOL: Storage.BOOLEAN, Form.FLOAT: Storage.FLOAT, Form.DOUBLE: Storage.DOUBLE, Form.BYTES: Storage.BYTES,
}


cdef int fill_column(Column* column, object plan, bytes absent, int64_t filled, const int* children, int number, int columns) except -1:
    column.storage, column.item = plan.storage, ITEM_TYPES[plan.storage].itemsize
    column.nullable, column.filled = plan.nullable, filled
    column.first_child, column.children = children, len(plan.children)
    column.absent, column.absent_size = absent, len(absent)
    require(column.storage != IN_NOTHING and all(number < child < columns for child in plan.children))
    require(column.storage == IN_BYTES or column.absent_size == column.item)
    return 0


def absent_value(plan):
    """Return the bytes of an absent field's value."""
    fixed = plan.storage != Storage.BYTES and not plan.default
    return bytes(ITEM_TYPES[plan.storage].itemsize) if fixed else plan.default


def decode_protobuf(program, data, starts, ends):
    """Decode rows; see `protobuf_decode.decode_protobuf`."""
    cdef const int64_t[::1] firsts = np.ascontiguousarray(starts, dtype=np.int64)
    cdef const int64_t[::1] lasts = np.ascontiguousarray(ends, dtype=np.int64)
    cdef const uint8_t[::1] content = np.ascontiguousarray(data)
    cdef int64_t row = 0, rows = firsts.shape[0], size = content.shape[0]
    cdef int messages = len(program.messages), columns = len(program.columns), index, failed = GOOD, at = 0
    cdef const uint8_t* base = &content[0] if size else NULL
    cdef Decoder decoder
    if rows != lasts.shape[0] or (
        rows and (starts.min() < 0 or ends.max() > size or (starts > ends).any())
    ):
        raise ValueError("the positions of Protobuf values are wrong: the input is damaged")
    require(messages > 0 and columns > 0 and program.columns[0].storage == Storage.RECORD and not program.columns[0].nullable)
    fields = [field for message in program.messages for field in message.fields]
    edges = [child for plan in program.columns for child in plan.children]
    edges += [number for field in fields for number in (*field.rivals, *field.known)]
    cdef const int[::1] numbers = np.array([*edges, 0], dtype=np.intc)
    cdef Entry* entries = <Entry*>calloc(len(fields) + 1, sizeof(Entry))
    cdef Layout* layouts = <Layout*>calloc(messages, sizeof(Layout))
    cdef Column* targets = <Column*>calloc(columns, sizeof(Column))
    cdef Counts* counts = <Counts*>calloc(columns, sizeof(Counts))
    cdef list memory = [bytearray() for _ in range(3 * columns)]
    cdef list absent = [absent_value(plan) for plan in program.columns]  # this list holds them
    cdef list failures = []
    try:
        if entries == NULL or layouts == NULL or targets == NULL or counts == NULL:
            raise MemoryError
        filled = filled_values(program.columns)
        for index, plan in enumerate(program.columns):
            fill_column(&targets[index], plan, absent[index], filled[index], &numbers[at], index, columns)
            at += len(plan.children)
        for index, each in enumerate(fields):
            fill_entry(&entries[index], each, &numbers[at], program)
            at += len(each.rivals) + len(each.known)
        at = 0
        for index, message in enumerate(program.messages):
            require(0 <= message.column < columns and list(message.fields) == sorted(message.fields))
            layouts[index].column, layouts[index].fields = message.column, len(message.fields)
            layouts[index].first_field = &entries[at]
            at += len(message.fields)
        decoder.messages = layouts
        decoder.store.columns, decoder.store.counts, decoder.store.memory = targets, counts, <void*>memory
        make_columns(&decoder.store, columns, rows)
        while row < rows:
            with nogil:
                while row < rows:
                    decoder.at, decoder.end = base + firsts[row], base + lasts[row]
                    decoder.values_left, decoder.depth = FREE + PER_BYTE * (lasts[row] - firsts[row]), 0
                    decoder.unknown_symbol = False
                    failed = begin(&decoder.store, 0)
                    if failed == GOOD:
                        failed = read_message(&decoder, 0, 0)
                    if failed != GOOD:
                        break
                    row += 1
            if failed != GOOD:
                if failed == FULL:
                    raise OverflowError(TOO_MUCH)
                if failed == NO_MEMORY:
                    raise MemoryError
                failures.append(Failure(row, failed, decoder.at - base - firsts[row], decoder.column))
                cut(&decoder.store, 0, row + 1 - len(failures))
                row, failed = row + 1, GOOD
        for index in range(columns):
            cut_memory(&decoder.store, index)
        return raw_columns(program.columns, memory, [counts[index].length for index in range(columns)]), failures
    finally:
        free(entries)
        free(layouts)
        free(targets)
        free(counts)
