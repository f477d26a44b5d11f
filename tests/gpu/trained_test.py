"""Every part of trained.py, which is for GPUs, with a model of toy size on the CPU: that its recipes are
valid, its promises are checked, and a broken one is an error."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
PARTS = ("speed", "waits", "links", "variants", "resume", "losses")
SHOWN = (
    "strait, stages: 2",
    "waits of the compute thread in a step        0.00",  # of a CPU
    "2 stages at 100 Mbit/s",
    "LoRA, base nf4",
    "two runs give the same bits                  holds",
    "resumed gives the bits of a whole run        holds",
    "furthest from the CPU's                      0.000 %",
)


def main():
    command = [sys.executable, "-B", HERE / "trained.py", *PARTS, "--device", "cpu", "--small"]
    command += ["--bin", os.environ.get("STRAIT_BIN", HERE.parents[1] / "build/release/bin")]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout, done.stderr, sep="\n")
    missing = [words for words in SHOWN if words not in done.stdout]
    if done.returncode != 0 or missing or "BROKEN" in done.stdout:
        sys.exit(f"ended with {done.returncode}, without: {missing}")
    sys.path.insert(0, str(HERE))
    import trained

    if trained.expect(False, "a promise that does not hold"):
        sys.exit("a broken promise was taken")


if __name__ == "__main__":
    main()
