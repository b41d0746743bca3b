"""Reading, side by side: whole topics, micro-batches, and from Kafka to Kafka.

Owns: the sources that are compared, the topics that they read, and the three parts of the benchmarks.
Must not know: how the package reads.
"""
