"""The compaction of logs: keep the last record of each key (`cleanup.policy=compact`; Kafka's LogCleaner, KIP-534).

Owns: which records stay (`retention`), the rewriting of a batch (`rewriting`), the pass over a log (`passes`), and which log is
compacted when (`timer`). Must not know: how an engine stores batches; `storage.base.Rewriting` replaces them.

Unlike Kafka's, a compacted log has no gaps: one batch without records stands for all adjacent batches that lost theirs.
"""

from spark_producer.broker.log.compaction.timer import CompactionTimer

__all__ = ["CompactionTimer"]
