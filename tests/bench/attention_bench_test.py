"""attention_bench builds, runs, and prints a row for every way. Speed and memory are not judged here."""

import os
import pathlib
import subprocess
import sys

BUILD = pathlib.Path(os.environ["STRAIT_BUILD"])


def main():
    command = ["cmake", "--build", BUILD, "--target", "attention_bench"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    bench = BUILD / "bin/attention_bench"
    printed = subprocess.run([bench, "1", "128"], check=True, capture_output=True, text=True).stdout
    print(printed)
    for way in ("by document", "window of an eighth", "dropout", "libtorch, mask"):
        assert printed.count(way) == 3, printed
    assert printed.count("libtorch, causal") == 1, printed
    return 0


if __name__ == "__main__":
    sys.exit(main())
