# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled kernel, which has the functions of `portable`, byte-equal and without the GIL.

What a caller passes in is never trusted: rows, slots and Arrow offsets are checked where they are used, and the space to
write into once per call. A bad value raises a ValueError, and nothing outside of a buffer is read or written.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

import numpy as np
import pyarrow as pa

from spark_producer.kernel.column_views import BinaryColumn

from spark_producer.kernel.layout cimport (
    OUTSIDE_DATA,
    OUTSIDE_ROWS,
    Slice,
    Values,
    fault,
    field_size,
    point_into,
    put_field,
    put_varint,
    take,
    varint_size,
    will_copy,
    will_read,
    will_write,
)

cdef enum:
    OVERHEAD = 20  # the same as RECORD_OVERHEAD of the portable kernel
    AHEAD = 8  # rows between the fetch of offsets and of what they point to, and between that and its use
    WRITTEN_AHEAD = 768  # in bytes; the open batches of many partitions are in no cache
    SMALL = 256  # bytes of a record; the processor prefetches the space for larger ones
    COPIED_AHEAD = 3  # rows between the fetch of a whole large value and its copy: a quarter less time at 1,000 bytes
    NEIGHBOURS = 4 * AHEAD  # if 2 * AHEAD rows lie within this number, the processor prefetches the next ones


# --- grouping and sizes ---------------------------------------------------------------------------------------------


def group_rows(slots, slot_count):
    """Sort rows by slot, keeping their order within one; see `portable.group_rows`."""
    cdef const int32_t[::1] slot_of = np.ascontiguousarray(slots, dtype=np.int32)
    cdef int64_t count = slot_of.shape[0], row, buckets = slot_count
    cdef int32_t slot
    cdef int code = 0
    rows, bounds, starts = np.empty(count, dtype=np.int64), np.zeros(buckets + 1, dtype=np.int64), None
    cdef int64_t[::1] sorted_rows = rows, ends = bounds, following
    with nogil:
        for row in range(count):
            slot = slot_of[row]
            if slot < 0 or slot >= buckets:
                code = OUTSIDE_ROWS
                break
            ends[slot + 1] += 1
    if code:
        raise fault(code)
    starts = np.cumsum(bounds, out=bounds).copy()
    following = starts
    with nogil:
        for row in range(count):
            slot = slot_of[row]
            sorted_rows[following[slot]] = row
            following[slot] += 1
    return rows, bounds


cdef struct Table:
    Values value
    Values key
    Values headers
    bint has_key
    bint has_headers
    const int64_t* timestamps  # if NULL, every row has `timestamp`
    int64_t timestamp
    int64_t count


cdef class TableView:
    """Pointers into a `RecordColumns`, and the objects that keep their memory alive."""

    cdef Table table
    cdef object columns
    cdef const int64_t[::1] timestamps

    def __cinit__(self, columns):
        cdef Table* table = &self.table
        cdef int64_t shortest
        self.columns = columns
        point_into(columns.value, &table.value)
        shortest = table.count = table.value.count
        if columns.key is not None:
            point_into(columns.key, &table.key)
            table.has_key = True
            shortest = min(shortest, table.key.count)
        if columns.headers is not None:
            point_into(columns.headers, &table.headers)
            table.has_headers = True
            shortest = min(shortest, table.headers.count)
        if isinstance(columns.timestamps, int):
            table.timestamp = columns.timestamps
        else:
            self.timestamps = np.ascontiguousarray(columns.timestamps, dtype=np.int64)
            shortest = min(shortest, self.timestamps.shape[0])
            table.timestamps = &self.timestamps[0] if shortest else NULL
        if shortest < table.count:
            raise ValueError("key, headers and timestamps must be as long as value")


cdef struct Fields:
    # The fields of one record that lie in the columns
    Slice key
    Slice value
    Slice headers
    int64_t body  # encoded bytes without length, timestamp delta and offset delta


cdef inline int take_row(const Table* table, int64_t row, Fields* fields) noexcept nogil:
    """Take the fields of one row without measuring them; return 0, or the reason why there are none."""
    cdef int code = take(&table.value, row, &fields.value)
    fields.key.length = fields.headers.length = -1
    if table.has_key:
        code |= take(&table.key, row, &fields.key)
    if table.has_headers:
        code |= take(&table.headers, row, &fields.headers)
    return OUTSIDE_DATA if code else 0


cdef inline void measure_row(const Table* table, Fields* fields) noexcept nogil:
    fields.body = 1 + field_size(&fields.key) + field_size(&fields.value)
    if not table.has_headers:
        fields.body += 1
    elif fields.headers.length > 0:
        fields.body += fields.headers.length


cdef inline int read_row(const Table* table, int64_t row, Fields* fields) noexcept nogil:
    """Take and measure the fields of one row; return 0, or the reason why there are none."""
    cdef int code = take_row(table, row, fields)
    if not code:
        measure_row(table, fields)
    return code


cdef inline bint within(const Fields* fields, const Fields* others) noexcept nogil:
    """Return whether no field is longer than the same one of the others: then the record is not larger."""
    return (
        fields.value.length <= others.value.length
        and fields.key.length <= others.key.length
        and fields.headers.length <= others.headers.length
    )


def record_sizes(columns):
    """Return an upper bound of each row's encoded size; see `portable.record_sizes`."""
    cdef TableView views = TableView(columns)
    sizes = np.empty(views.table.count, dtype=np.int64)
    cdef int64_t[::1] out = sizes
    cdef Fields fields
    cdef int64_t row
    cdef int code = 0
    with nogil:
        for row in range(views.table.count):
            code = read_row(&views.table, row, &fields)
            if code:
                break
            out[row] = fields.body + OVERHEAD
    if code:
        raise fault(code)
    return sizes


def largest_record(columns):
    """Return the first row with the largest encoded size, and an upper bound of it; see `portable.largest_record`."""
    cdef TableView views = TableView(columns)
    if not views.table.count:
        return 0, 0
    cdef Fields fields, most
    cdef int64_t row
    cdef int64_t largest = 0
    cdef int code = 0
    most.value.length, most.body = -2, -1
    with nogil:
        for row in range(views.table.count):
            code = take_row(&views.table, row, &fields)
            if code:
                break
            if within(&fields, &most):
                continue
            measure_row(&views.table, &fields)
            if fields.body > most.body:
                largest, most = row, fields
    if code:
        raise fault(code)
    return largest, most.body + OVERHEAD


# --- V2 records -----------------------------------------------------------------------------------------------------


cdef class ArrangedRows:
    """Columns with the order in which their rows are encoded; see `portable.ArrangedRows`."""

    cdef readonly object columns, rows
    cdef TableView views
    cdef const int64_t[::1] order

    def __init__(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.views = TableView(columns)
        self.order = np.ascontiguousarray(rows, dtype=np.int64)

    def __len__(self):
        return self.order.shape[0]

    def timestamp_at(self, position):
        """Return the timestamp of the row at `position`, in milliseconds."""
        return self.columns.timestamp_at(self._row(position))

    def size_at(self, position):
        """Return an upper bound of the encoded size of the row at `position`."""
        cdef Fields fields
        if read_row(&self.views.table, self._row(position), &fields):
            raise fault(OUTSIDE_DATA)
        return fields.body + OVERHEAD

    cdef int64_t _row(self, int64_t position) except -1:
        if not 0 <= position < self.order.shape[0] or not 0 <= self.order[position] < self.views.table.count:
            raise fault(OUTSIDE_ROWS)
        return self.order[position]


cdef struct Progress:
    int64_t following
    int64_t position
    int64_t latest


cdef int encode_rows(
    const Table* table,
    const int64_t* rows,
    int64_t stop,
    int64_t end,
    int64_t delta,
    int64_t base_timestamp,
    uint8_t* out,
    int64_t limit,
    Progress* progress,
) noexcept nogil:
    """Encode until `stop`, or the first row that does not fit into `out` before `limit`; return 0, or why it ended early."""
    cdef uint8_t* at = out + progress.position
    cdef int64_t row, size, near, far
    cdef int64_t timestamp = table.timestamp, time_delta
    cdef Fields fields
    while progress.following < stop:
        row = rows[progress.following]
        if progress.following < end - 2 * AHEAD:  # this may go beyond `stop`, because those rows come next
            near, far = rows[progress.following + AHEAD], rows[progress.following + 2 * AHEAD]
            if not 0 <= far - row <= NEIGHBOURS and 0 <= near < table.count and 0 <= far < table.count:
                will_read(table.value.data, table.value.offsets32, table.value.offsets64, near, far)
                if table.has_key:
                    will_read(table.key.data, table.key.offsets32, table.key.offsets64, near, far)
                if table.has_headers:
                    will_read(table.headers.data, table.headers.offsets32, table.headers.offsets64, near, far)
        if row < 0 or row >= table.count:
            return OUTSIDE_ROWS
        if read_row(table, row, &fields):
            return OUTSIDE_DATA
        if table.timestamps != NULL:
            timestamp = table.timestamps[row]
        # These are unsigned, because signed numbers must not overflow in C; the portable kernel and Java count in 64 bits too.
        time_delta = <int64_t>(<uint64_t>timestamp - <uint64_t>base_timestamp)
        size = fields.body + varint_size(time_delta) + varint_size(delta)
        if size + varint_size(size) > limit - (at - out):
            break
        if size <= SMALL:
            will_write(at + WRITTEN_AHEAD)
        elif progress.following < end - COPIED_AHEAD:
            near = rows[progress.following + COPIED_AHEAD]
            if 0 <= near < table.count:
                will_copy(table.value.data, table.value.offsets32, table.value.offsets64, near)
        at = put_varint(at, size)
        at[0] = 0  # attributes
        at = put_varint(at + 1, time_delta)
        at = put_varint(at, delta)
        at = put_field(at, &fields.key)
        at = put_field(at, &fields.value)
        if not table.has_headers:
            at[0] = 0
            at += 1
        elif fields.headers.length > 0:
            memcpy(at, fields.headers.start, fields.headers.length)
            at += fields.headers.length
        progress.following += 1
        delta += 1
        if timestamp > progress.latest:
            progress.latest = timestamp
    progress.position = at - out
    return 0


def encode_v2(
    ArrangedRows arranged not None,
    int64_t first,
    int64_t stop,
    int64_t base_offset_delta,
    int64_t base_timestamp,
    uint8_t[::1] out not None,
    int64_t position,
    int64_t limit,
):
    """Encode rows `first` … `stop` - 1 into `out[position:limit]`; see `portable.encode_v2`."""
    cdef Progress progress
    cdef int code = 0
    if not (0 <= first <= stop <= arranged.order.shape[0] and 0 <= position <= limit <= out.shape[0]):
        raise ValueError(f"rows {first} to {stop}, or bytes {position} to {limit}, lie outside of what was given")
    progress.following, progress.position, progress.latest = first, position, -1
    if first < stop and position < limit:
        with nogil:
            code = encode_rows(
                &arranged.views.table, &arranged.order[0], stop, arranged.order.shape[0],
                base_offset_delta, base_timestamp, &out[0], limit, &progress,
            )
    if code:
        raise fault(code)
    return progress.following, progress.position, progress.latest


# --- headers --------------------------------------------------------------------------------------------------------


cdef int size_headers(
    const int64_t[::1] counts, const Values* keys, const Values* values, int64_t entries, int64_t[::1] ends
) noexcept nogil:
    """Compute where each row's header block ends, from `ends[0]` = 0 on; return 0, or the reason why it cannot."""
    cdef int64_t row, entry = 0, last, end = 0
    cdef Slice key, value
    cdef int code
    ends[0] = 0
    for row in range(counts.shape[0]):
        if counts[row] < 0 or counts[row] > entries - entry:
            return OUTSIDE_ROWS
        last = entry + counts[row]
        end += varint_size(counts[row])
        while entry < last:
            code = take(keys, entry, &key) | take(values, entry, &value)
            if code:
                return code
            end += field_size(&key) + field_size(&value)
            entry += 1
        ends[row + 1] = end
    return 0


cdef void put_headers(const int64_t[::1] counts, const Values* keys, const Values* values, uint8_t* out) noexcept nogil:
    """Write the headers that `size_headers` has measured, and thereby checked."""
    cdef int64_t row, entry = 0, last
    cdef Slice field
    for row in range(counts.shape[0]):
        last = entry + counts[row]
        out = put_varint(out, counts[row])
        while entry < last:
            take(keys, entry, &field)
            out = put_field(out, &field)
            take(values, entry, &field)
            out = put_field(out, &field)
            entry += 1


def encode_headers(counts, keys, values):
    """Encode each row's header block; see `portable.encode_headers`."""
    cdef const int64_t[::1] row_counts = np.ascontiguousarray(counts, dtype=np.int64)
    cdef Values all_keys, all_values
    ends_of_rows = np.empty(row_counts.shape[0] + 1, dtype=np.int64)
    cdef int64_t[::1] ends = ends_of_rows
    cdef int code
    point_into(keys, &all_keys)
    point_into(values, &all_values)
    if all_keys.count != all_values.count:
        raise ValueError("keys and values of headers must be equally many")
    with nogil:
        code = size_headers(row_counts, &all_keys, &all_values, all_keys.count, ends)
    if code:
        raise fault(code)
    size = ends[row_counts.shape[0]]
    blocks = np.empty(max(1, size), dtype=np.uint8)
    cdef uint8_t[::1] out = blocks
    with nogil:
        put_headers(row_counts, &all_keys, &all_values, &out[0])
    kind, offsets = (pa.binary(), ends_of_rows.astype(np.int32)) if size <= INT32_MAX else (pa.large_binary(), ends_of_rows)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(blocks)]
    return BinaryColumn(pa.Array.from_buffers(kind, row_counts.shape[0], buffers))
