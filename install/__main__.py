"""`python -m install cpu|gpu|simulated`: checks this machine, then makes or updates `.venv`."""

from __future__ import annotations

import argparse
import subprocess
import sys

from install.environment import ROOT, Environment
from install.failures import told
from install.machine import ENGINES, missing


def main() -> int:
    """Install; return 1 where something is missing or a step failed."""
    parser = argparse.ArgumentParser(prog="python -m install", description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--extras", default="embedded,load,dev", help="further extras (default: %(default)s)")
    arguments = parser.parse_args()
    if lacking := missing(arguments.engine, ROOT):
        print("This machine lacks:", *(f"  {it.what}\n    {it.remedy}" for it in lacking), sep="\n", file=sys.stderr)
        return 1
    try:
        Environment(arguments.engine, arguments.extras).create()
    except subprocess.CalledProcessError as error:
        print(told(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
