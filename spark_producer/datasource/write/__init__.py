"""Writing a DataFrame: the two writers that Spark pickles, and what driver and workers share.

Owns: batch and streaming writes in Spark. Modules of `driver` run in the driver, those of `worker` in Python workers.
Must not know: requests, connections, the accumulator (`producer` hides them).
"""
