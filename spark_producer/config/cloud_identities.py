"""The cloud identities that `oauthTokenProvider` can name, and the options that each of them uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

AWS_PROVIDER = "aws-msk-iam"
AZURE_CLIENT_SECRET = "azure-client-secret"  # a name, not a secret
AZURE_MANAGED_IDENTITY = "azure-managed-identity"
AZURE_WORKLOAD_IDENTITY = "azure-workload-identity"
GOOGLE_PROVIDER = "gcp-managed-kafka"


class Uses(NamedTuple):
    """The options that an identity uses."""

    may: frozenset[str]
    """The options that it can have: `id`, `secret`, `scope`, `tenant`, and `aws` for those of Amazon's login module."""
    must: frozenset[str] = frozenset()
    """The options that it cannot do without."""


_USES: Mapping[str, Uses] = {
    AWS_PROVIDER: Uses(frozenset({"aws"})),
    AZURE_CLIENT_SECRET: Uses(frozenset({"id", "secret", "scope", "tenant"}), must=frozenset({"id", "secret"})),
    AZURE_MANAGED_IDENTITY: Uses(frozenset({"id", "scope"})),
    AZURE_WORKLOAD_IDENTITY: Uses(frozenset({"id", "scope", "tenant"})),
    GOOGLE_PROVIDER: Uses(frozenset()),
}

CLOUD_PROVIDERS: tuple[str, ...] = tuple(_USES)
"""The names of all cloud identities. A function of the user has a colon in its name, so no name can mean both."""

AZURE_PROVIDERS = (AZURE_CLIENT_SECRET, AZURE_MANAGED_IDENTITY, AZURE_WORKLOAD_IDENTITY)
"""The identities of Microsoft Entra."""


def uses_of(provider: str) -> Uses | None:
    """Return the options that a token provider uses; None for a function of the user, which uses none."""
    return _USES.get(provider)
