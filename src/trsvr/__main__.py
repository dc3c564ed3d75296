"""``python -m trsvr``: the command ``trsvr``, where its script is not on the path."""

import sys

from trsvr.cli import main

if __name__ == "__main__":
    sys.exit(main())
