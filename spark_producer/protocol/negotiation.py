"""The first request of a connection, for the API versions of the broker (KIP-35, KIP-511)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from spark_producer.common.error_codes import Code
from spark_producer.common.escape import for_log
from spark_producer.errors import RemoteProtocolError, UnsupportedVersion, broker_error
from spark_producer.protocol.apis import API_VERSIONS, AnyApi
from spark_producer.protocol.codec import decode_response
from spark_producer.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from spark_producer.version import __version__

SOFTWARE_NAME = "pyproducer"
SOFTWARE_VERSION = __version__
"""The name and the version must match [a-zA-Z0-9](?:[a-zA-Z0-9\\-.]*[a-zA-Z0-9])?, or brokers refuse ApiVersions (KIP-511)."""

FIRST_VERSION: Final = 3
"""The version of ApiVersions that is requested first; 4 differs only in the features that the broker returns."""

IDENTITY_VERSION: Final = 5
"""The version of ApiVersions from which on the broker compares its identity with the expected one (KIP-1242)."""


class BrokerIdentity(NamedTuple):
    """The broker that a connection is meant for."""

    cluster_id: str
    node_id: int


class SetupRequest(NamedTuple):
    """A request that the connection itself sends, before or between those of its user."""

    api: AnyApi
    version: int
    body: tuple[Any, ...]


class Negotiation:
    """Requests the versions: send `first`, pass each response to `received`, and send its result, until that is None."""

    def __init__(self, expected: BrokerIdentity | None = None) -> None:
        """With `expected` a broker that knows `IDENTITY_VERSION` refuses a connection that is meant for another one."""
        self.response: ApiVersionsResponse | None = None
        """The versions that the broker supports, once they are known."""
        self._expected = expected
        self._version = FIRST_VERSION if expected is None else IDENTITY_VERSION

    def first(self) -> SetupRequest:
        """Return the first request."""
        request = ApiVersionsRequest(SOFTWARE_NAME, SOFTWARE_VERSION)
        if self._expected is not None:
            request = request._replace(cluster_id=self._expected.cluster_id, node_id=self._expected.node_id)
        return SetupRequest(API_VERSIONS, self._version, request)

    def received(self, frame: memoryview) -> SetupRequest | None:
        """Return the next request after a response; None once the versions are known.

        Raises:
            UnsupportedVersion: The broker refuses every version of ApiVersions.
            BrokerError, RemoteProtocolError: It returns another error, or its response cannot be read.
        """
        response = self._decode(frame)
        if response is None:
            return self._retry(0)
        if response.error_code == Code.UNSUPPORTED_VERSION:
            return self._retry(_version_to_fall_back_to(response))
        if response.error_code == Code.REBOOTSTRAP_REQUIRED and self._expected is not None:
            cluster, node = for_log(self._expected.cluster_id), self._expected.node_id
            raise broker_error(
                response.error_code, f"broker {node} of cluster {cluster!r}, whose address leads to another broker"
            )
        if response.error_code:
            raise broker_error(response.error_code, "ApiVersions, the first request of a connection")
        self.response = response
        return None

    def _decode(self, frame: memoryview) -> ApiVersionsResponse | None:
        """Return the response, or None if it cannot be read: then version 0 is requested (librdkafka's mock needs that for 3)."""
        error_code = int.from_bytes(frame[4:6], "big", signed=True)
        # KIP-511: with this error the body has the format of version 0 for any request.
        version = 0 if error_code == Code.UNSUPPORTED_VERSION else self._version
        try:
            _, body = decode_response(API_VERSIONS, version, frame)
        except RemoteProtocolError:
            if self._version == 0:
                raise
            return None
        return body

    def _retry(self, version: int) -> SetupRequest:
        if version >= self._version:
            version = 0  # the broker has refused this version already, though it claims to support it
        if self._version == 0:
            raise UnsupportedVersion("the broker refuses every version of ApiVersions; it must be older than 0.10")
        self._version = version
        return self.first()


def _version_to_fall_back_to(response: ApiVersionsResponse) -> int:
    """Return the newest version of ApiVersions that both sides support, or 0 if the broker does not name it."""
    newest = next((row.max_version for row in response.api_keys if row.api_key == API_VERSIONS.key), 0)
    return max(0, min(newest, API_VERSIONS.max_version))
