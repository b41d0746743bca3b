"""What a micro-batch costs, beside Spark's own sinks: `python -m benchmarks.micro_batches`."""
