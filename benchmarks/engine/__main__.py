"""Measure the engine against its peers, print one table, and keep it as JSON in benchmarks/results."""

import argparse

from benchmarks.engine import PIECES, measure


def main() -> None:
    """Measure the pieces that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PIECES, default=PIECES, help="these alone")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    options = parser.parse_args()
    measure(options.only, options.quick)


if __name__ == "__main__":
    main()
