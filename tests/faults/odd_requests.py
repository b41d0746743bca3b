"""Requests that are well-formed and strange: made from the schemas, for every API and version, by a seeded generator.

Extreme numbers, empty and huge strings, null where it is legal, names that are repeated, unknown, illegal or taken, tens of
thousands of elements; and frames of such requests with bytes changed.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any, NamedTuple

from spark_producer.protocol import APIS, CREATE_TOPICS, DELETE_TOPICS, AnyApi, encode_request
from spark_producer.protocol.codec import MAX_REQUEST_ELEMENTS
from spark_producer.protocol.fields import MAX_STRING_BYTES, Array, Field, Message, Struct, WireType
from spark_producer.protocol.messages import FetchRequest, ProduceRequest
from tests.unit.broker.batches import filler_batch, make_batch

BITS = {WireType.INT8: 8, WireType.INT16: 16, WireType.INT32: 32, WireType.INT64: 64}

TOPICS = [*(f"topic-{number}" for number in range(12)), "a.b", "a_b", "Topic-1", ".deleted-x", "x" * 249]
ODD_TEXTS = [
    "",
    ".",
    "..",
    "no such topic",
    "a/b",
    "../a",
    "\0",
    "€" * 200,
    "x" * 250,
    "unknown",
    "topic-1-0",
    "\U0001f600",
]
SETTINGS = ["segment.bytes", "max.message.bytes", "cleanup.policy", "min.insync.replicas", "retention.ms", "nonsense"]
VALUES = ["", "0", "1", "100000", "-1", "9" * 30, "9" * 5000, "delete", "compact", "x" * 3000, "1.5", "٣"]

LONG_TEXT_IN = 400
"""One of this many texts has the maximum size that Kafka's protocol allows."""

HUGE_ARRAY_IN = 1500
"""One of this many arrays has hundreds to tens of thousands of elements."""

RARE = {CREATE_TOPICS.key: 0.15, DELETE_TOPICS.key: 0.1}
"""Weights of what waits for the disk."""

PATIENT_MS = 20
"""Maximum time in milliseconds that a Fetch waits; the requests after it on the connection wait as long."""


class OddRequest(NamedTuple):
    """A request and its frame. `last`: it may get no answer, or end its connection, so nothing should come after it."""

    api: AnyApi
    version: int
    body: Any
    frame: bytes
    last: bool

    def __str__(self) -> str:
        return f"{self.api.name} version {self.version}, frame of {len(self.frame)} bytes: {str(self.body)[:1000]}"


def elements_of(value: Any) -> int:
    """Elements of all arrays in a body: plain tuples, where messages are named ones."""
    if not isinstance(value, tuple):
        return 0
    return (len(value) if type(value) is tuple else 0) + sum(map(elements_of, value))


class OddRequests:
    """A stream of requests that the seed determines; the broker refuses frames beyond `largest_frame` bytes."""

    def __init__(self, seed: str, largest_frame: int) -> None:
        self.random = Random(seed)
        self._largest_frame = largest_frame
        self._apis = list(APIS.values())
        self._weights = [RARE.get(api.key, 1.0) for api in self._apis]
        self._in_huge_array = False
        self._correlation = 0

    def request(self) -> OddRequest:
        """The next request."""
        (api,) = self.random.choices(self._apis, self._weights)
        version = self.random.randint(api.min_version, api.max_version)
        body = self._body(api.request, version)
        self._correlation += 1
        client_id = self.random.choice((None, "", "odd", "€" * 30))
        frame = b"".join(encode_request(api, version, self._correlation, client_id, body))
        last = (
            len(frame) > self._largest_frame
            or elements_of(body) > MAX_REQUEST_ELEMENTS
            or (isinstance(body, ProduceRequest) and body.acks == 0)
            or (isinstance(body, FetchRequest) and body.max_wait_ms > PATIENT_MS)
        )
        return OddRequest(api, version, body, frame, last)

    def damaged(self) -> OddRequest:
        """The next request, with some bytes of its frame changed, left out or put in twice."""
        request = self.request()
        frame = bytearray(request.frame)
        for _ in range(self.random.choice((1, 1, 2, 10))):
            position = self.random.randrange(4, len(frame))
            match self.random.randrange(4):
                case 0:
                    frame[position] ^= 1 << self.random.randrange(8)
                case 1:
                    frame[position] = self.random.choice((0, 1, 0x7F, 0x80, 0xFF))
                case 2 if len(frame) > 20:
                    del frame[position]
                case _:
                    frame[position:position] = frame[position : position + 8]
        if self.random.random() < 0.9:  # else the size is a lie as well
            frame[:4] = (len(frame) - 4).to_bytes(4, "big")
        return request._replace(frame=bytes(frame), last=True)

    def _body(self, schema: Struct[Message], version: int) -> Message:
        return schema.make(
            [
                self._value(schema, field, version) if field.in_version(version) else field.default
                for field in schema.fields
            ]
        )

    def _value(self, schema: Struct[Any], field: Field, version: int) -> Any:
        if field.nullable(version) and self.random.random() < 0.1:
            return None
        if isinstance(field.type, Array):
            return self._array(schema, field, field.type, version)
        return self._element(schema, field, field.type, version)

    def _array(self, schema: Struct[Any], field: Field, array: Array, version: int) -> tuple[Any, ...]:
        if not self._in_huge_array and self.random.randrange(HUGE_ARRAY_IN) == 0:
            count = int(10 ** self.random.uniform(2, 4.8))
            self._in_huge_array = True
            elements = [self._element(schema, field, array.of, version) for _ in range(3)] * (count // 3)
            self._in_huge_array = False
        else:
            elements = [
                self._element(schema, field, array.of, version) for _ in range(self.random.choice((0, 1, 1, 2, 3, 6)))
            ]
            if elements and self.random.random() < 0.2:
                elements += self.random.choices(elements, k=2)
        return tuple(elements)

    def _element(self, schema: Struct[Any], field: Field, of: WireType | Array | Struct[Any], version: int) -> Any:
        if isinstance(of, Struct):
            return self._body(of, version)
        assert isinstance(of, WireType)
        if of in BITS:
            return self._integer(field, BITS[of])
        if of is WireType.BOOL:
            return self.random.random() < 0.5
        if of is WireType.UUID:
            return self.random.choice((bytes(16), self.random.randbytes(16)))
        return self._records() if of is WireType.RECORDS else self._text(schema, field)

    def _integer(self, field: Field, bits: int) -> int:
        top = 1 << (bits - 1)
        usual: tuple[int, ...] = (2,) if field.name == "resource_type" else (0, 1)
        return self.random.choice((*usual * 3, -1, -2, 2, 10, -top, top - 1, self.random.randrange(-top, top)))

    def _text(self, schema: Struct[Any], field: Field) -> str:
        if not self._in_huge_array and self.random.randrange(LONG_TEXT_IN) == 0:
            return self.random.choice(("y", "\0")) * MAX_STRING_BYTES
        if field.name == "configuration_keys" or (field.name == "name" and "Config" in schema.name):
            return self.random.choice((*SETTINGS, *ODD_TEXTS[:3]))
        if field.name == "value":
            return self.random.choice(VALUES)
        return self.random.choice(TOPICS if self.random.random() < 0.7 else ODD_TEXTS)

    def _records(self) -> bytes | memoryview:
        random = self.random
        if random.random() < 0.2:
            return random.randbytes(random.choice((0, 1, 60, 61, 200)))
        producer = random.choice((-1, 0, 1, 2**63 - 1))
        return _batch(
            random.choice((1, 5)),
            truthful=random.random() < 0.7,
            size=random.choice((150, 3000)),
            timestamp=random.choice((-1, 0, 1000, 2**63 - 1)),
            producer_id=producer,
            epoch=random.choice((0, 1, 2**15 - 1)) if producer >= 0 else -1,
            sequence=random.choice((0, 1, 2**31 - 1)) if producer >= 0 else -1,
            attributes=random.choice((0, 0, 0, 1, 4, 7, 16, 32)),
        )


@cache
def _batch(records: int, *, truthful: bool, **fields: int) -> memoryview:
    """A batch whose header says what is in it, or one of filler that claims as many records as there can be."""
    return make_batch(records, **fields) if truthful else filler_batch(2**31 - records, **fields)
