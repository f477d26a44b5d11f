"""Every part of trained.py, which is for GPUs, with a model of toy size on the CPU: that its recipes are
valid, its promises are checked, a broken one is an error, a GPU that is not used is noticed, and neither a
signal nor a kill leaves anything behind."""

import json
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


def training_script(folder):
    """A script with running stages."""
    script = subprocess.Popen(command("losses", "--folder", folder))
    while len(stages_below(folder)) < 2 and script.poll() is None:
        time.sleep(0.02)
    return script


def a_signal_leaves_nothing_behind():
    with tempfile.TemporaryDirectory() as folder:
        script = training_script(folder)
        script.send_signal(signal.SIGTERM)
        if script.wait() != 128 + signal.SIGTERM:
            sys.exit(f"a signal ended it with {script.returncode}")
        left = [*stages_below(folder), *os.listdir(folder)]
        if left:
            sys.exit(f"a signal left behind: {left}")


def a_kill_leaves_no_process_behind():
    with tempfile.TemporaryDirectory() as folder:
        script = training_script(folder)
        script.kill()
        if script.wait() != -signal.SIGKILL:
            sys.exit(f"it ended by itself, with {script.returncode}")
        deadline = time.monotonic() + 60
        while left := stages_below(folder):
            if time.monotonic() > deadline:
                sys.exit(f"a kill left behind: {left}")
            time.sleep(0.02)
        if ended := list(pathlib.Path(folder).glob("*/runs/*/status.json")):
            outcomes = [json.loads(path.read_text())["outcome"] for path in ended]
            if any(outcome and outcome["code"] == 0 for outcome in outcomes):
                sys.exit("the run came to its end before the kill reached it")


def an_idle_gpu_is_noticed():
    codecs, attention = "boundaries are quantised", "attention is computed by"
    good = f"computes on cuda:0; {codecs} there\n{attention} libtorch's flash attention\n"
    for dtype, log, missed in (
        ("bfloat16", good, ""), ("bfloat16", good.replace("there", "by the CPU"), "boundaries"),
        ("bfloat16", good.replace("by libtorch's", "by blocks, not by libtorch's"), "attention"),
        ("bfloat16", good + "index_add_cuda_ does not have a deterministic implementation", "libtorch"),
        ("float32", f"{codecs} there", ""),
    ):
        said = trained.missed_of_gpu(log, dtype)
        if not said.startswith(missed) or bool(said) != bool(missed):
            sys.exit(f"of {log!r} it says {said!r}")
    # They are the stages' own words.
    source = (trained.ROOT / "launcher/worker/stage_process.cpp").read_text()
    for words in (codecs + " {}", '"by the CPU" : "there"', attention + " {}", '"libtorch\'s flash attention where'):
        if words not in source:
            sys.exit(f"a stage process does not log {words!r}")


def main():
    an_idle_gpu_is_noticed()
    every_part()
    a_signal_leaves_nothing_behind()
    a_kill_leaves_no_process_behind()
    if trained.expect(False, "a promise that does not hold"):
        sys.exit("a broken promise was taken")


if __name__ == "__main__":
    main()
