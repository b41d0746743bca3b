# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled decoder, which does what `decode.decode_v2` does without the GIL, with equal results.

Every length is checked against the end of its record before it is followed; the spaces of the batches are checked once per
call.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

import numpy as np

from spark_producer.kernel.decode import HEADERS_AT_ONCE, MAX_HEADERS, DecodedV2

cdef int64_t most_headers = MAX_HEADERS

cdef enum:
    MIN_RECORD_BYTES = 7  # bytes of length, attributes, two deltas, key and value length, and header count
    FIELDS = 7
    HEADER_FIELDS = 4

cdef enum Found:
    MALFORMED
    TOO_MANY_HEADERS  # for this call; the headers are not wrong
    RECORD

cdef struct Cursor:
    const uint8_t* data
    int64_t at
    int64_t end  # nothing at or after this position is read


cdef inline bint read_varint(Cursor* cursor, int64_t* value) noexcept nogil:
    """Read a zigzag varint of 32 bits; return False if there is none."""
    cdef uint32_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    while cursor.at < cursor.end:
        byte = cursor.data[cursor.at]
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
        byte = cursor.data[cursor.at]
        cursor.at += 1
        if shift == 63 and byte > 0x01:
            return False
        raw |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
            return True
        shift += 7
    return False


cdef inline bint read_field(Cursor* cursor, int64_t smallest, int64_t* start, int64_t* length) noexcept nogil:
    """Read a length and as many bytes; return False if the length is below `smallest`, or the bytes do not fit."""
    if not read_varint(cursor, length) or length[0] < smallest:
        return False
    start[0] = cursor.at
    if length[0] > 0:
        if length[0] > cursor.end - cursor.at:
            return False
        cursor.at += length[0]
    return True


cdef bint read_headers(Cursor* cursor, int64_t count, int64_t* out, int64_t stride) noexcept nogil:
    """Read `count` headers that fill the rest of the record; their columns go to `out` unless that is NULL."""
    cdef int64_t key_start, key_length, value_start, value_length, entry
    for entry in range(count):
        if not read_field(cursor, 0, &key_start, &key_length) or not read_field(cursor, -1, &value_start, &value_length):
            return False
        if out != NULL:
            out[entry] = key_start
            out[entry + stride] = key_length
            out[entry + 2 * stride] = value_start
            out[entry + 3 * stride] = value_length
    return cursor.at == cursor.end


cdef Found read_record(
    const uint8_t* data, int64_t* at, int64_t end, int64_t max_headers, int64_t* out, int64_t stride, int64_t* headers_at
) noexcept nogil:
    """Read a record of at most `max_headers` headers at `at`, its fields into `out`; if there is none, `at` stays where it is."""
    cdef Cursor cursor
    cdef int64_t length, timestamp_delta, offset_delta, count
    cdef int64_t key_start, key_length, value_start, value_length
    cursor.data, cursor.at, cursor.end = data, at[0], end
    if not read_varint(&cursor, &length) or length < MIN_RECORD_BYTES - 1 or length > end - cursor.at:
        return MALFORMED
    cursor.end = cursor.at + length
    cursor.at += 1  # attributes
    if (
        not read_varlong(&cursor, &timestamp_delta)
        or not read_varint(&cursor, &offset_delta)
        or not read_field(&cursor, -1, &key_start, &key_length)
        or not read_field(&cursor, -1, &value_start, &value_length)
        or not read_varint(&cursor, &count)
        or not 0 <= count <= most_headers
        or cursor.end - cursor.at < 2 * count
        or (count == 0 and cursor.at != cursor.end)
    ):
        return MALFORMED
    if count > max_headers:
        return TOO_MANY_HEADERS
    headers_at[0] = cursor.at
    if not read_headers(&cursor, count, NULL, 0):
        return MALFORMED
    out[0] = timestamp_delta
    out[stride] = offset_delta
    out[2 * stride] = key_start
    out[3 * stride] = key_length
    out[4 * stride] = value_start
    out[5 * stride] = value_length
    out[6 * stride] = count
    at[0] = cursor.end
    return RECORD


def decode_v2(data, positions, ends, counts, int64_t headers_at_once=HEADERS_AT_ONCE):
    """Decode the records of one or more batches; see `decode.decode_v2`."""
    cdef const uint8_t[::1] content = data
    cdef const int64_t[::1] first = np.ascontiguousarray(positions, dtype=np.int64)
    cdef const int64_t[::1] last = np.ascontiguousarray(ends, dtype=np.int64)
    cdef const int64_t[::1] claimed = np.ascontiguousarray(counts, dtype=np.int64)
    cdef int64_t batch, most = 0, rows = 0, entries = 0, stop = -1
    cdef Found found = RECORD
    if not first.shape[0] == last.shape[0] == claimed.shape[0]:
        raise ValueError("positions, ends and counts must be equally long")
    for batch in range(first.shape[0]):
        if not 0 <= first[batch] <= last[batch] <= content.shape[0] or claimed[batch] < 0:
            raise ValueError(f"batch {batch} lies outside of the data")
        most += min(claimed[batch], (last[batch] - first[batch]) // MIN_RECORD_BYTES)
    fields = np.empty((FIELDS + 2, max(1, most)), dtype=np.int64)
    cdef int64_t[:, ::1] out = fields
    cdef const uint8_t* start = &content[0] if content.shape[0] else NULL
    with nogil:
        for batch in range(first.shape[0]):
            stop = read_batch(
                start, first[batch], last[batch], claimed[batch], headers_at_once, out, &rows, &entries, &found
            )
            if stop >= 0:
                break
    return DecodedV2(stop, found == TOO_MANY_HEADERS, *fields[:FIELDS, :rows], *collect_headers(start, out, rows, entries))


cdef int64_t read_batch(
    const uint8_t* data,
    int64_t at,
    int64_t end,
    int64_t count,
    int64_t headers_at_once,
    int64_t[:, ::1] out,
    int64_t* rows,
    int64_t* entries,
    Found* found,
) noexcept nogil:
    """Add a batch's records; return -1, or the position of a malformed record or of one with too many headers, as `found` says."""
    cdef int64_t max_headers, row = rows[0]
    cdef int64_t stop_row = row + count
    while row < stop_row and row < out.shape[1] and at < end:
        max_headers = headers_at_once - entries[0] if entries[0] else INT64_MAX
        found[0] = read_record(data, &at, end, max_headers, &out[0, row], out.shape[1], &out[FIELDS, row])
        if found[0] != RECORD:
            break
        out[FIELDS + 1, row] = at
        entries[0] += out[FIELDS - 1, row]
        row += 1
    rows[0] = row
    return -1 if row == stop_row and at == end else at


cdef object collect_headers(const uint8_t* data, int64_t[:, ::1] fields, int64_t rows, int64_t entries):
    """Return the four header columns of all rows, which were checked when they were read."""
    columns = np.empty((HEADER_FIELDS, entries), dtype=np.int64)
    cdef int64_t[:, ::1] out = columns
    cdef int64_t row, entry = 0, count
    cdef Cursor cursor
    if entries:
        with nogil:
            cursor.data = data
            for row in range(rows):
                count = fields[FIELDS - 1, row]
                if count:
                    cursor.at, cursor.end = fields[FIELDS, row], fields[FIELDS + 1, row]
                    read_headers(&cursor, count, &out[0, entry], entries)
                    entry += count
    return columns
