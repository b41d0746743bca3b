"""The compaction of logs: of each key the last record is kept (`cleanup.policy=compact`; Kafka's LogCleaner, KIP-534).

Owns: which records stay (`retention`), the rewriting of a batch (`rewriting`), the pass over a log (`passes`), and when which log
is compacted (`timer`). Must not know: how an engine keeps batches; `storage.base.Rewriting` puts the new ones in their places.

Unlike Kafka's, a compacted log has no gaps: one batch without records stands for all batches in a row that lost theirs.
"""

from spark_producer.broker.log.compaction.timer import CompactionTimer

__all__ = ["CompactionTimer"]
