# cython: language_level=3
"""The columns that the compiled encoders of Avro and Protobuf read: a tree of nodes that point into numpy's memory.

Offsets were checked when the columns were read. The lengths of all arrays are checked here, before any of them is followed.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc

cdef extern from *:
    """
    #include <stdint.h>
    /* The bytes of a varint below 2^56, from the lowest one on. The seven bits of each are spread by halves, so that neither a loop
       nor a branch depends on how many there are. */
    static inline uint64_t varint_bytes(uint64_t rest, int size) {
        rest = ((rest & 0x00fffffff0000000ULL) << 4) | (rest & 0x000000000fffffffULL);
        rest = ((rest & 0x0fffc0000fffc000ULL) << 2) | (rest & 0x00003fff00003fffULL);
        rest = ((rest & 0x3f803f803f803f80ULL) << 1) | (rest & 0x007f007f007f007fULL);
        return rest | (0x8080808080808080ULL & ((1ULL << (8 * (size - 1))) - 1));
    }
    """

cdef enum:
    VARINT = 0
    FIXED = 1
    BYTES = 2
    RAW = 3
    CONSTANT = 4
    RECORD = 5
    ARRAY = 6
    UNION = 7

    SLACK = 16  # bytes beside the encoded ones, into which short values are written whole
    WASTED = 1 << 16  # bytes of a bound that was too high; more of them than encoded ones are given back

cdef struct Node:
    int kind  # of `NodeKind`
    int null_mark  # of Avro, as the next one
    int value_mark
    int wrapping  # of Protobuf, as the next one
    uint64_t tag
    int64_t length
    int64_t width
    const uint8_t* valid  # NULL if no value is null
    const int64_t* longs
    const uint8_t* data
    int64_t size  # the bytes of `data`
    const int64_t* offsets
    int first_child  # the children of a node lie side by side
    int children


cdef inline list by_level(object top):
    """Return a column, or a plan, and all below it: the children of each one side by side, after all earlier ones."""
    found = [top]
    for each in found:  # it grows
        found.extend(each.children)
    return found


cdef inline Node* new_nodes(Py_ssize_t count) except NULL:
    """Return memory for nodes, which the caller frees."""
    cdef Node* nodes = <Node*>calloc(count, sizeof(Node))
    if nodes == NULL:
        raise MemoryError
    return nodes


cdef inline list point_nodes(Node* nodes, list columns):
    """Point the nodes at the memory of the columns, which are `by_level`; return what must live as long."""
    cdef int place, next_child = 1
    held = []
    for place, column in enumerate(columns):
        held.append(point_node(&nodes[place], column))
        nodes[place].first_child, nodes[place].children = next_child, len(column.children)
        next_child += nodes[place].children
    return held


cdef inline list point_node(Node* node, object column):
    """Point a node at the memory of a column, whose lengths are checked; return what must live as long."""
    import numpy as np

    cdef const uint8_t[::1] valid
    cdef const int64_t[::1] longs
    cdef const uint8_t[::1] data
    cdef const int64_t[::1] offsets
    cdef int64_t length = column.length, end
    held = []
    node.kind, node.null_mark, node.value_mark, node.width = column.kind, column.null_mark, column.value_mark, column.width
    node.length = length
    if column.valid is not None:
        flags = np.ascontiguousarray(column.valid).view(np.uint8)
        valid = flags
        require(valid.shape[0] == length)
        node.valid = &valid[0] if length else NULL
        held.append(flags)
    if node.kind == VARINT or node.kind == UNION:
        numbers = np.ascontiguousarray(column.longs, dtype=np.int64)
        longs = numbers
        require(longs.shape[0] == length)
        node.longs = &longs[0] if length else NULL
        held.append(numbers)
    if node.kind < RECORD and node.kind != VARINT:
        content = np.ascontiguousarray(column.data)
        data = content
        node.data, node.size = (&data[0] if data.shape[0] else NULL), data.shape[0]
        held.append(content)
    if node.kind == FIXED:
        require(node.width >= 0 and node.size == length * node.width)
    if node.kind == CONSTANT:
        require(node.width == node.size)
    if node.kind == BYTES or node.kind == RAW or node.kind == ARRAY:
        end = column.children[0].length if node.kind == ARRAY else node.size
        ends = np.ascontiguousarray(column.offsets, dtype=np.int64)
        offsets = ends
        require(offsets.shape[0] == length + 1 and offsets[0] >= 0 and offsets[length] <= end)
        node.offsets = &offsets[0]
        held.append(ends)
    if node.kind == RECORD or node.kind == UNION:
        require(all([child.length == length for child in column.children]))
    if node.kind == UNION and length:
        require(numbers.min() >= 0 and numbers.max() < len(column.children))
    return held


cdef inline int require(bint holds) except -1:
    if not holds:
        raise ValueError("the arrays of a column have wrong lengths: the input is damaged")
    return 0


cdef inline object without_waste(object encoded, int64_t size):
    """Return the encoded bytes, a part of an array of `size` bytes: a copy if most of that would be wasted."""
    return encoded.copy() if size > 2 * len(encoded) + WASTED else encoded
