"""The Kafka protocol without any I/O: messages and their bytes, and the state of a connection.

Owns: the schemas and messages, their encoding, the frames, version negotiation and the order of a login.
Must not know: sockets, threads or the clock (`network`), or what a producer does with the answers (`sender`).
"""

from spark_producer.protocol import messages
from spark_producer.protocol.apis import (
    API_VERSIONS,
    APIS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    PRODUCE_ZSTD,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    AnyApi,
    Api,
    RequestBody,
    ResponseBody,
)
from spark_producer.protocol.codec import (
    RequestFrame,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from spark_producer.protocol.exchange import Connection, Response, State
from spark_producer.protocol.fields import LONGEST_STRING, Buffer, decoded_records
from spark_producer.protocol.frames import FrameReader
from spark_producer.protocol.login import Login

__all__ = [
    "APIS",
    "API_VERSIONS",
    "CREATE_TOPICS",
    "DELETE_TOPICS",
    "DESCRIBE_CONFIGS",
    "FETCH",
    "INCREMENTAL_ALTER_CONFIGS",
    "INIT_PRODUCER_ID",
    "LIST_GROUPS",
    "LIST_OFFSETS",
    "LONGEST_STRING",
    "METADATA",
    "PRODUCE",
    "PRODUCE_ZSTD",
    "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE",
    "AnyApi",
    "Api",
    "Buffer",
    "Connection",
    "FrameReader",
    "Login",
    "RequestBody",
    "RequestFrame",
    "Response",
    "ResponseBody",
    "State",
    "decode_request",
    "decode_response",
    "decoded_records",
    "encode_request",
    "encode_response",
    "messages",
]
