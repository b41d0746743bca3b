# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled encoder of single records, byte-equal to `single_record.SingleRecord`.

It keeps the GIL, because to release it and take it again costs more than a record of some 100 bytes.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_Size
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from spark_producer.kernel.layout cimport Slice, field_size, put_field, put_varint, varint_size

cdef enum:
    OVERHEAD = 20  # the same as RECORD_OVERHEAD of the portable kernel
    BUFFER_FULL = -1


cdef inline Slice slice_of(bytes field):
    cdef Slice found
    if field is None:
        found.start, found.length = NULL, -1
    else:
        found.start, found.length = <const uint8_t*>PyBytes_AsString(field), PyBytes_Size(field)
    return found


@cython.final
@cython.freelist(16)
cdef class SingleRecord:
    """A record ready to be encoded; see `single_record.SingleRecord`."""

    cdef readonly bytes key, value, headers
    cdef readonly int64_t timestamp, size

    def __cinit__(self, bytes key, bytes value, bytes headers not None, int64_t timestamp):
        cdef Slice key_bytes = slice_of(key), value_bytes = slice_of(value)
        self.key, self.value, self.headers, self.timestamp = key, value, headers, timestamp
        self.size = OVERHEAD + 1 + field_size(&key_bytes) + field_size(&value_bytes) + PyBytes_Size(headers)

    def encode(self, out, int64_t position, int64_t limit, int64_t offset_delta, int64_t base_timestamp):
        """Write the record to `out` from `position` on; see `single_record.SingleRecord.encode`."""
        cdef Py_buffer view
        PyObject_GetBuffer(out, &view, PyBUF_WRITABLE)
        try:
            if not 0 <= position <= limit <= view.len:
                raise ValueError(f"bytes {position} to {limit} lie outside of a buffer of {view.len} bytes")
            return self._put(<uint8_t*>view.buf + position, position, limit, offset_delta, base_timestamp)
        finally:
            PyBuffer_Release(&view)

    cdef int64_t _put(
        self, uint8_t* at, int64_t position, int64_t limit, int64_t offset_delta, int64_t base_timestamp
    ):
        cdef Slice key = slice_of(self.key), value = slice_of(self.value)
        cdef int64_t headers = PyBytes_Size(self.headers)
        # These are unsigned, because signed numbers must not overflow in C.
        cdef int64_t time_delta = <int64_t>(<uint64_t>self.timestamp - <uint64_t>base_timestamp)
        cdef int64_t body = self.size - OVERHEAD + varint_size(time_delta) + varint_size(offset_delta)
        cdef int64_t end = position + varint_size(body) + body
        if end > limit:
            return BUFFER_FULL
        at = put_varint(at, body)
        at[0] = 0  # attributes
        at = put_varint(at + 1, time_delta)
        at = put_varint(at, offset_delta)
        at = put_field(at, &key)
        at = put_field(at, &value)
        memcpy(at, PyBytes_AsString(self.headers), headers)
        return end
