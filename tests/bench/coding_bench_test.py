"""coding_bench builds, runs, and has a row of every sync method. Speed is not judged here."""

import os
import pathlib
import re
import subprocess
import sys

BUILD = pathlib.Path(os.environ["STRAIT_BUILD"])
METHODS = {"allreduce", "cocktail", "diloco", "streaming_diloco", "noloco", "onebit_adam", "bytegrad", "powersgd"}


def main():
    subprocess.run(["cmake", "--build", BUILD, "--target", "coding_bench"], check=True, stdout=subprocess.DEVNULL)
    printed = subprocess.run([BUILD / "bin/coding_bench", "1", "18"], check=True, capture_output=True, text=True).stdout
    rows = re.findall(r"^(\w+).*? +([\d.]+) +([\d.]+)$", printed, re.MULTILINE)
    assert {name for name, _, _ in rows} == METHODS, printed
    assert all(float(engine) > 0 and float(trainer) > 0 for _, engine, trainer in rows), printed
    print(printed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
