# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled decoder, which does what `decode.decode_v2` does without the GIL, with equal results.

It goes over the records once: each field is checked against the end of its record before it is followed, and is written to the
buffers of Arrow at once. Only headers are read twice, because their number is not known before.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy, memset

import numpy as np
import pyarrow as pa

from spark_producer.kernel.arrays import MAX_BINARY_BYTES
from spark_producer.kernel.decoded_v2 import (
    MAX_HEADERS,
    DecodedV2,
    HeaderColumns,
    binary_array,
    int64_array,
    no_header_columns,
)

cdef int64_t max_headers_of_record = MAX_HEADERS

cdef enum:
    MIN_RECORD_BYTES = 7  # bytes of length, attributes, two deltas, key and value length, and header count

cdef enum Found:
    WRONG
    FULL  # the record is right so far, but exceeds a limit of this call
    RECORD

cdef struct Batch:
    Py_buffer view
    int64_t count
    int64_t base_offset
    int64_t last_offset_delta
    int64_t base_timestamp
    bint has_append_time
    int64_t append_time
    int64_t previous

cdef struct Field:
    const uint8_t* start
    int64_t length  # -1 is null

cdef struct Record:
    int64_t size  # with its length field
    int64_t timestamp_delta
    int64_t offset_delta
    Field key
    Field value
    int64_t header_count
    const uint8_t* headers  # where they start; they end with the record
    int64_t header_key_bytes
    int64_t header_value_bytes

cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end  # nothing at or after this position is read

cdef struct Binary:
    # A binary column that is written. `ends` is NULL if it is not wanted.
    int32_t* ends
    uint8_t* data
    uint8_t* valid
    int64_t size
    int64_t nulls

cdef struct Output:
    int64_t max_rows
    int64_t max_headers
    int64_t max_bytes
    int64_t rows
    int64_t bytes
    int64_t headers
    int64_t header_key_bytes
    int64_t header_value_bytes
    int64_t* offsets
    int64_t* timestamps
    Binary key
    Binary value
    int32_t* header_ends
    const uint8_t** header_spaces  # start and end for each row


cdef inline bint read_varint(Cursor* cursor, int64_t* value) noexcept nogil:
    """Read a zigzag varint of 32 bits; return False if there is none."""
    cdef uint32_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    while cursor.at < cursor.end:
        byte = cursor.at[0]
        cursor.at += 1
        if shift == 28 and byte > 0x0F:
            return False
        raw |= <uint32_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
            return True
        shift += 7
    return False


cdef inline bint read_varlong(Cursor* cursor, int64_t* value) noexcept nogil:
    """Read a zigzag varint of 64 bits; return False if there is none."""
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    while cursor.at < cursor.end:
        byte = cursor.at[0]
        cursor.at += 1
        if shift == 63 and byte > 0x01:
            return False
        raw |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
            return True
        shift += 7
    return False


cdef inline bint read_field(Cursor* cursor, int64_t smallest, Field* field) noexcept nogil:
    """Read a length and as many bytes; return False if the length is below `smallest`, or the bytes do not fit."""
    if not read_varint(cursor, &field.length) or field.length < smallest:
        return False
    field.start = cursor.at
    if field.length > 0:
        if field.length > cursor.end - cursor.at:
            return False
        cursor.at += field.length
    return True


cdef inline bint read_headers(Cursor* cursor, Record* record) noexcept nogil:
    """Check the headers, which must fill the rest of the record, and count their bytes."""
    cdef Field key = [NULL, 0], value = [NULL, 0]
    cdef int64_t entry
    record.header_key_bytes = record.header_value_bytes = 0
    for entry in range(record.header_count):
        if not read_field(cursor, 0, &key) or not read_field(cursor, -1, &value):
            return False
        record.header_key_bytes += key.length
        record.header_value_bytes += value.length if value.length > 0 else 0
    return cursor.at == cursor.end


cdef inline Found read_record(
    const uint8_t* at, const uint8_t* end, int64_t max_bytes, int64_t max_headers, Record* record
) noexcept nogil:
    """Read the record at `at`. It is FULL if it has more than `max_bytes` or `max_headers`, before what follows is checked."""
    cdef Cursor cursor
    cdef int64_t length
    cursor.at, cursor.end = at, end
    if not read_varint(&cursor, &length) or length < MIN_RECORD_BYTES - 1 or length > end - cursor.at:
        return WRONG
    cursor.end = cursor.at + length
    record.size = cursor.end - at
    if record.size > max_bytes:
        return FULL
    cursor.at += 1  # attributes
    if (
        not read_varlong(&cursor, &record.timestamp_delta)
        or not read_varint(&cursor, &record.offset_delta)
        or not read_field(&cursor, -1, &record.key)
        or not read_field(&cursor, -1, &record.value)
        or not read_varint(&cursor, &record.header_count)
        or not 0 <= record.header_count <= max_headers_of_record
        or cursor.end - cursor.at < 2 * record.header_count
        or (record.header_count == 0 and cursor.at != cursor.end)
    ):
        return WRONG
    if record.header_count > max_headers:
        return FULL
    record.headers = cursor.at
    return RECORD if record.header_count == 0 or read_headers(&cursor, record) else WRONG


cdef inline void append(Binary* column, int64_t row, const Field* field) noexcept nogil:
    """Add a value to a column, if it is wanted."""
    if column.ends == NULL:
        return
    if field.length > 0:
        memcpy(column.data + column.size, field.start, field.length)
        column.size += field.length
    elif field.length < 0:
        column.valid[row >> 3] &= <uint8_t>~(1 << (row & 7))
        column.nulls += 1
    column.ends[row + 1] = <int32_t>column.size


cdef inline bint add_row(Output* out, const Batch* batch, const Record* record) noexcept nogil:
    """Add a record; return False if its timestamp does not fit into 64 bits."""
    cdef int64_t row = out.rows
    cdef int64_t time = <int64_t>(<uint64_t>batch.base_timestamp + <uint64_t>record.timestamp_delta)
    if ((batch.base_timestamp ^ time) & (record.timestamp_delta ^ time)) < 0:
        return False
    if out.offsets != NULL:
        out.offsets[row] = batch.base_offset + record.offset_delta
    if out.timestamps != NULL:
        out.timestamps[row] = batch.append_time if batch.has_append_time else time
    append(&out.key, row, &record.key)
    append(&out.value, row, &record.value)
    out.headers += record.header_count
    if out.header_ends != NULL:
        out.header_ends[row + 1] = <int32_t>out.headers
        if record.header_count:
            out.header_key_bytes += record.header_key_bytes
            out.header_value_bytes += record.header_value_bytes
            out.header_spaces[row] = record.headers
    out.rows += 1
    out.bytes += record.size
    return True


cdef Found read_batch(Batch* batch, Output* out, int64_t* row, int64_t* position) noexcept nogil:
    """Add a batch's records. Unless all of it is right, return why it stopped before row `row`, at `position`."""
    cdef const uint8_t* start = <const uint8_t*>batch.view.buf
    cdef const uint8_t* at = start
    cdef const uint8_t* end = start + batch.view.len
    cdef Record record
    cdef Found found = RECORD
    row[0] = 0
    while row[0] < batch.count:
        if out.rows == out.max_rows:
            found = FULL
            break
        found = read_record(
            at,
            end,
            out.max_bytes - out.bytes if out.rows else INT64_MAX,
            out.max_headers - out.headers if out.headers else INT64_MAX,
            &record,
        )
        if found != RECORD:
            break
        if not batch.previous < record.offset_delta <= batch.last_offset_delta or not add_row(out, batch, &record):
            found = WRONG
            break
        batch.previous = record.offset_delta
        at += record.size
        row[0] += 1
    position[0] = at - start
    return WRONG if found == RECORD and at != end else found


cdef object add_headers(Output* out, ends):
    """Return the header columns; `ends` are written already. The headers, which were checked when their records were read, go into exact buffers."""
    cdef Binary keys, values
    cdef Field field = [NULL, 0]
    cdef Cursor cursor
    cdef int64_t row, entry = 0
    if not out.headers:
        return no_header_columns(out.rows)
    key_buffers = point_at(&keys, out.headers, out.header_key_bytes)
    value_buffers = point_at(&values, out.headers, out.header_value_bytes)
    with nogil:
        for row in range(out.rows):
            if entry == out.header_ends[row + 1]:
                continue
            cursor.at = out.header_spaces[row]
            cursor.end = cursor.at + INT32_MAX  # they were checked: no read gets so far
            while entry < out.header_ends[row + 1]:
                read_field(&cursor, 0, &field)
                append(&keys, entry, &field)
                read_field(&cursor, -1, &field)
                append(&values, entry, &field)
                entry += 1
    shrink(ends, 4 * (out.rows + 1))
    return HeaderColumns(ends, as_array(&keys, out.headers, key_buffers), as_array(&values, out.headers, value_buffers))


cdef uint8_t* address(buffer):
    return <uint8_t*><uintptr_t>buffer.address


cdef object point_at(Binary* column, int64_t rows, int64_t size):
    """Set the pointers of a column to new buffers for `rows` and `size` bytes, and return the buffers."""
    ends = pa.allocate_buffer(4 * (rows + 1), resizable=True)
    data = pa.allocate_buffer(size, resizable=True)
    valid = pa.allocate_buffer((rows + 7) // 8, resizable=True)
    column.ends, column.data, column.valid = <int32_t*>address(ends), address(data), address(valid)
    column.ends[0] = 0
    column.size = column.nulls = 0
    memset(column.valid, 0xFF, (rows + 7) // 8)
    return ends, data, valid


cdef object as_array(Binary* column, int64_t rows, buffers):
    """Return a column's first rows as an array; buffers give back what they did not need."""
    ends, data, valid = buffers
    if column.nulls and rows & 7:
        column.valid[rows >> 3] &= <uint8_t>((1 << (rows & 7)) - 1)
    shrink(ends, 4 * (rows + 1))
    shrink(data, column.size)
    shrink(valid, (rows + 7) // 8)
    return binary_array(rows, ends, data, valid, column.nulls)


cdef object shrink(buffer, int64_t size):
    if buffer.size != size:
        buffer.resize(size, shrink_to_fit=True)
    return buffer


cdef int64_t first_size(Batch* batches, int64_t count) noexcept nogil:
    """Return the bytes of the first record, as far as its length can be read and fits into its batch; else 0."""
    cdef int64_t index, length
    cdef Cursor cursor
    for index in range(count):
        if batches[index].view.len and batches[index].count:
            cursor.at = <const uint8_t*>batches[index].view.buf
            cursor.end = cursor.at + batches[index].view.len
            if read_varint(&cursor, &length) and 0 <= length <= cursor.end - cursor.at:
                return cursor.at + length - <const uint8_t*>batches[index].view.buf
            return 0
    return 0


def decode_v2(batches, columns, limits):
    """Decode the records of one or more batches; see `decode.decode_v2`."""
    cdef int64_t count = len(batches), opened = 0
    cdef Batch* known = <Batch*>PyMem_Calloc(max(count, 1), sizeof(Batch))
    if known == NULL:
        raise MemoryError()
    try:
        for batch in batches:
            records, claimed, base_offset, last_offset_delta, base_timestamp, append_time, previous = batch
            known[opened].count = claimed
            known[opened].base_offset = base_offset
            known[opened].last_offset_delta = last_offset_delta
            known[opened].base_timestamp = base_timestamp
            known[opened].has_append_time = append_time is not None
            known[opened].append_time = append_time if append_time is not None else 0
            known[opened].previous = previous
            PyObject_GetBuffer(records, &known[opened].view, PyBUF_SIMPLE)
            opened += 1
        return decode_batches(known, count, columns, limits)
    finally:
        for index in range(opened):
            PyBuffer_Release(&known[index].view)
        PyMem_Free(known)


cdef object decode_batches(Batch* batches, int64_t count, columns, limits):
    cdef Output out
    cdef int64_t index, rows = 0, size = 0, row = 0, position = 0, previous = -1
    cdef Found found = RECORD
    cdef int64_t[::1] spaces
    memset(&out, 0, sizeof(Output))
    out.max_rows, out.max_headers, out.max_bytes = limits
    for index in range(count):
        rows += max(0, min(batches[index].count, batches[index].view.len // MIN_RECORD_BYTES))
        size += batches[index].view.len
    size = min(size, max(out.max_bytes, first_size(batches, count)))
    rows = min(rows, out.max_rows, size // MIN_RECORD_BYTES)
    if size > MAX_BINARY_BYTES:
        raise ValueError(f"{size} bytes of records are more than Arrow's offsets of 32 bits can address; set a limit")
    offsets = timestamps = keys = values = header_ends = headers = None
    if "offset" in columns:
        offsets = pa.allocate_buffer(8 * rows, resizable=True)
        out.offsets = <int64_t*>address(offsets)
    if "timestamp" in columns:
        timestamps = pa.allocate_buffer(8 * rows, resizable=True)
        out.timestamps = <int64_t*>address(timestamps)
    if "key" in columns:
        keys = point_at(&out.key, rows, size)
    if "value" in columns:
        values = point_at(&out.value, rows, size)
    if "headers" in columns:
        header_ends = pa.allocate_buffer(4 * (rows + 1), resizable=True)
        out.header_ends = <int32_t*>address(header_ends)
        out.header_ends[0] = 0
        spaces = np.empty(rows + 1, dtype=np.int64)
        out.header_spaces = <const uint8_t**>&spaces[0]
    with nogil:
        for index in range(count):
            found = read_batch(&batches[index], &out, &row, &position)
            if found != RECORD:
                previous = batches[index].previous
                break
        else:
            index, row, position = count, 0, 0
    if header_ends is not None:
        headers = add_headers(&out, header_ends)
    return DecodedV2(
        out.rows, index, row, position, previous, found == FULL,
        None if offsets is None else int64_array(out.rows, shrink(offsets, 8 * out.rows)),
        None if timestamps is None else int64_array(out.rows, shrink(timestamps, 8 * out.rows)),
        None if keys is None else as_array(&out.key, out.rows, keys),
        None if values is None else as_array(&out.value, out.rows, values),
        headers,
    )
