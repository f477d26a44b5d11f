"""Every part of trained.py, which is for GPUs, with a model of toy size on the CPU: that its recipes are
valid, its promises are checked, a broken one is an error, and a signal leaves nothing behind."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import trained

HERE = pathlib.Path(__file__).parent
SHOWN = (
    "strait, stages: 2",
    "waits of the compute thread in a step        0.00",  # of a CPU
    "2 stages at 100 Mbit/s",
    "4 stages at 100 Mbit/s",
    "LoRA, base nf4",
    "two runs give the same bits                  holds",
    "resumed gives the bits of a whole run        holds",
    "furthest from the CPU's                      0.000 %",
)


def command(*parts):
    programs = os.environ.get("STRAIT_BIN", HERE.parents[1] / "build/release/bin")
    return [sys.executable, "-B", HERE / "trained.py", *parts, "--device", "cpu", "--small", "--bin", programs]


def every_part():
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # more slow the toy down, on a busy machine a lot
    done = subprocess.run(command(*trained.PARTS), capture_output=True, text=True, env=one_thread)
    print(done.stdout, done.stderr, sep="\n")
    missing = [words for words in SHOWN if words not in done.stdout]
    if done.returncode != 0 or missing or "BROKEN" in done.stdout:
        sys.exit(f"ended with {done.returncode}, without: {missing}")


def stages_below(folder):
    """Whose working directory, that of their launcher, is in the folder."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            inside = (process / "cwd").readlink().is_relative_to(folder)
            if inside and b"strait-stage" in (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:
            continue  # it has ended, or is another user's
    return found


def a_signal_leaves_nothing_behind():
    with tempfile.TemporaryDirectory() as folder:
        script = subprocess.Popen(command("losses"), env=os.environ | {"TMPDIR": folder})
        while len(stages_below(folder)) < 2 and script.poll() is None:
            time.sleep(0.02)
        script.send_signal(signal.SIGTERM)
        if script.wait() != 128 + signal.SIGTERM:
            sys.exit(f"a signal ended it with {script.returncode}")
        left = [*stages_below(folder), *os.listdir(folder)]
        if left:
            sys.exit(f"a signal left behind: {left}")


def main():
    every_part()
    a_signal_leaves_nothing_behind()
    if trained.expect(False, "a promise that does not hold"):
        sys.exit("a broken promise was taken")


if __name__ == "__main__":
    main()
