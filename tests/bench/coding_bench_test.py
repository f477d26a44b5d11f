"""coding_bench builds, runs, and has a row of every sync method. Speed is not judged here."""

import re

import quick_run

METHODS = {"allreduce", "cocktail", "diloco", "streaming_diloco", "noloco", "onebit_adam", "bytegrad", "powersgd"}


def main():
    printed = quick_run.built("coding_bench", "1", "18")
    rows = re.findall(r"^(\w+).*? +([\d.]+) +([\d.]+)$", printed, re.MULTILINE)
    assert {name for name, _, _ in rows} == METHODS, printed
    assert all(float(engine) > 0 and float(trainer) > 0 for _, engine, trainer in rows), printed


if __name__ == "__main__":
    main()
