"""Reading topics as DataFrames: the two readers that Spark pickles, and what driver and workers share.

Owns: batch and streaming reads in Spark. Modules of `driver` run in the driver, those of `worker` in Python workers.
Must not know: Fetch requests, record batches (`consumer` hides them), the writing half.
"""
