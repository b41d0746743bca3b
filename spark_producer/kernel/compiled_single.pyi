class SingleRecord:
    key: bytes | None
    value: bytes | None
    headers: bytes
    timestamp: int
    size: int
    def __init__(self, key: bytes | None, value: bytes | None, headers: bytes, timestamp: int) -> None: ...
    def encode(self, out: memoryview, position: int, limit: int, offset_delta: int, base_timestamp: int) -> int: ...
