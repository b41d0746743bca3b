"""The first question of a connection: which versions of which requests the broker speaks (KIP-35, KIP-511)."""

from __future__ import annotations

from typing import Any, NamedTuple

from spark_producer.common.error_codes import Code
from spark_producer.errors import RemoteProtocolError, UnsupportedVersion, broker_error
from spark_producer.protocol.apis import API_VERSIONS, AnyApi
from spark_producer.protocol.codec import decode_response
from spark_producer.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from spark_producer.version import __version__

SOFTWARE_NAME = "pyproducer"
SOFTWARE_VERSION = __version__
"""The name and the version must match [a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*[a-zA-Z0-9])?, or brokers refuse ApiVersions (KIP-511)."""

FIRST_ASKED_VERSION = 3
"""The version of ApiVersions that is asked first; 4 differs only in which features the broker names."""


class SetupRequest(NamedTuple):
    """A request that the connection itself sends, before or between those of its user."""

    api: AnyApi
    version: int
    body: tuple[Any, ...]


class Negotiation:
    """Asks for the versions: send `first`, give each answer to `answered`, and send what it returns, until it returns None."""

    def __init__(self) -> None:
        self.response: ApiVersionsResponse | None = None
        """The versions that the broker speaks, once they are known."""
        self._version = FIRST_ASKED_VERSION

    def first(self) -> SetupRequest:
        """Return the question to begin with."""
        return SetupRequest(API_VERSIONS, self._version, ApiVersionsRequest(SOFTWARE_NAME, SOFTWARE_VERSION))

    def received(self, frame: memoryview) -> SetupRequest | None:
        """Return the next question after an answer; None once the versions are known.

        Raises:
            UnsupportedVersion: The broker refuses every version of the question.
            BrokerError, RemoteProtocolError: It gives another error, or its answer cannot be read.
        """
        answer = self._decode(frame)
        if answer is None:
            return self._again(0)
        if answer.error_code == Code.UNSUPPORTED_VERSION:
            return self._again(_version_to_fall_back_to(answer))
        if answer.error_code:
            raise broker_error(answer.error_code, "ApiVersions, the first request of a connection")
        self.response = answer
        return None

    def _decode(self, frame: memoryview) -> ApiVersionsResponse | None:
        """Return the answer, or None if it cannot be read: then version 0 is asked (librdkafka's mock answers 3 like this)."""
        error_code = int.from_bytes(frame[4:6], "big", signed=True)
        # KIP-511: with this error the body has the shape of version 0, whatever was asked.
        version = 0 if error_code == Code.UNSUPPORTED_VERSION else self._version
        try:
            _, body = decode_response(API_VERSIONS, version, frame)
        except RemoteProtocolError:
            if self._version == 0:
                raise
            return None
        return body

    def _again(self, version: int) -> SetupRequest:
        if version >= self._version:
            version = 0  # the broker refused this version already, whatever it claims
        if self._version == 0:
            raise UnsupportedVersion("the broker refuses every version of ApiVersions; it must be older than 0.10")
        self._version = version
        return self.first()


def _version_to_fall_back_to(answer: ApiVersionsResponse) -> int:
    """Return the newest version of ApiVersions that both sides speak, or 0 if the broker does not tell."""
    newest = next((row.max_version for row in answer.api_keys if row.api_key == API_VERSIONS.key), 0)
    return max(0, min(newest, API_VERSIONS.max_version))
