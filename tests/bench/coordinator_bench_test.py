"""coordinator_bench builds, runs, and has a row for every number of stages. Speed is not judged here."""

import re

import quick_run


def main():
    printed = quick_run.built("coordinator_bench")
    rows = re.findall(r"^ *(\d+) +([\d.]+) +([\d.]+)$", printed, re.MULTILINE)
    assert [int(stages) for stages, _, _ in rows] == [10, 100, 1000], printed
    # Of the most stages: the cost of few is below what the clock of the processor shows.
    assert float(rows[-1][1]) > 0 and float(rows[-1][2]) > 0, printed


if __name__ == "__main__":
    main()
