"""The cost of a micro-batch beside Spark's own sinks: `python -m benchmarks.micro_batches`."""
