"""``python -m trsvr.cli``."""

import sys

from trsvr.cli import main

if __name__ == "__main__":
    sys.exit(main())
