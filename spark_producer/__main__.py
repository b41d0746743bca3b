"""The entry point of the command line: `python -m spark_producer`, installed as `pyproducer`."""

import sys

from spark_producer.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
