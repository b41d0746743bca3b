"""The features that a cluster has agreed on, as its brokers tell when a connection opens (KIP-584)."""

from __future__ import annotations

from spark_producer.protocol.messages import ApiVersionsResponse


class Features:
    """The finalized features by the newest word of any broker. Its epoch says which word is newer; -1 is that of none."""

    def __init__(self) -> None:
        self._epoch = -1
        self._levels: dict[str, int] = {}

    def told(self, answer: ApiVersionsResponse) -> None:
        """Take in the answer to ApiVersions, which opens every connection."""
        if answer.finalized_features_epoch >= self._epoch:
            self._epoch = answer.finalized_features_epoch
            self._levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}

    def level(self, feature: str) -> int:
        """Return the level of a feature; 0 if it has none."""
        return self._levels.get(feature, 0)
