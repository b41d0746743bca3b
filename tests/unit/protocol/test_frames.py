from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_producer.errors import RemoteProtocolError
from spark_producer.protocol import FrameReader
from spark_producer.protocol.frames import STAGING_BYTES

SIZES = [0, 1, 3, 100, STAGING_BYTES - 5, STAGING_BYTES - 4, STAGING_BYTES - 3, STAGING_BYTES, 300_000, 3_000_000, 7]


def framed(*payloads: bytes) -> bytes:
    return b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)


def payloads() -> list[bytes]:
    return [bytes((i + 1,)) * size for i, size in enumerate(SIZES)]


@pytest.mark.parametrize("step", [1000, 4093, STAGING_BYTES, 10_000_000])
def test_frames_come_out_whole_however_they_arrive(step: int) -> None:
    reader, data = FrameReader(), framed(*payloads())
    found = [frame for start in range(0, len(data), step) for frame in reader.receive(data[start : start + step])]
    assert [bytes(frame) for frame in found] == payloads()


def test_byte_by_byte() -> None:
    reader, data = FrameReader(), framed(b"one", b"", b"three")
    found = [bytes(frame) for i in range(len(data)) for frame in reader.receive(data[i : i + 1])]
    assert found == [b"one", b"", b"three"]


def test_a_frame_owns_its_memory() -> None:
    reader = FrameReader()
    first = reader.receive(framed(b"first"))[0]
    second = reader.receive(framed(b"other"))[0]
    second[:] = b"mine!"
    reader.receive(framed(bytes(STAGING_BYTES * 2)))
    assert (bytes(first), bytes(second)) == (b"first", b"mine!")


def test_a_size_alone_takes_no_memory() -> None:
    reader, before = FrameReader(), resident()
    assert reader.receive((100_000_000).to_bytes(4, "big") + bytes(10)) == []
    assert resident() - before < 10_000_000
    assert len(reader.space()) == 100_000_000 - 10


def resident() -> int:
    """The bytes of this process's memory that the system has given."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_large_frame_is_received_into_its_own_memory() -> None:
    reader = FrameReader()
    reader.receive((200_000).to_bytes(4, "big") + b"x")
    space = reader.space()
    assert len(space) == 199_999  # exactly the missing bytes: the next frame stays in the socket
    frame = reader.received(199_999)[0]
    assert frame.obj is space.obj


@pytest.mark.parametrize(
    ("start", "hint"),
    [
        (b"HTTP/1.1 400", "web server"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "TLS port"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "plain text"),
        (b"SSH-2.0-OpenSSH", "SSH"),
        (b"GET / HTTP/1.1", "HTTP request"),
        (b"\xff\xff\xff\xff", "may not speak the Kafka protocol"),
        ((1001).to_bytes(4, "big"), "may not speak the Kafka protocol"),
    ],
)
def test_an_impossible_size_says_what_the_peer_may_be(start: bytes, hint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=hint):
        FrameReader(max_frame_size=1000).receive(start)


def test_frames_before_a_fault_are_not_lost() -> None:
    reader = FrameReader()
    assert [bytes(frame) for frame in reader.receive(framed(b"good") + b"HTTP/1.1")] == [b"good"]
    with pytest.raises(RemoteProtocolError, match="HTTP"):
        reader.received(0)


def test_a_large_frame_waits_to_be_admitted() -> None:
    asked, space_size = [], [0]

    def admit(size: int) -> bool:
        asked.append(size)
        return size <= space_size[0]

    reader = FrameReader(admit=admit)
    data = framed(b"small", bytes(100_000))
    assert [bytes(frame) for frame in reader.receive(data[:1000])] == [b"small"]
    assert (reader.wanted, reader.in_frame, reader.in_large_frame) == (100_000, True, False)
    assert reader.received(0) == []
    space_size[0] = 100_000
    assert reader.received(0) == []
    assert (reader.wanted, reader.in_large_frame, asked) == (0, True, [100_000] * 3)
    assert [bytes(frame) for frame in reader.receive(data[1000:])] == [bytes(100_000)]
    assert not reader.in_frame


def test_a_reader_at_rest_holds_no_memory_and_goes_on() -> None:
    reader = FrameReader()
    data = framed(b"first", b"second")
    assert [bytes(frame) for frame in reader.receive(data[:12])] == [b"first"]
    reader.rest()
    assert reader.in_frame, "half a frame stays"
    assert [bytes(frame) for frame in reader.receive(data[12:])] == [b"second"]
    reader.rest()
    assert not reader._staging, "memory that is held shows nowhere else"
    assert [bytes(frame) for frame in reader.receive(data)] == [b"first", b"second"]
