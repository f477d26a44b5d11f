"""What it costs a run to be watched: steps with and without readers of its files, in turn, in one run. See README.md.

usage: watching.py [--bin FOLDER] [--rounds 6] [--window 8] [--quick]

Two stages, one thread each. Readers: strait track to Prometheus, which is asked every second, and a connection to it
that never reads; strait track to TensorBoard; strait watch on a terminal that nobody reads; strait status every
second. The trace has no switch: its cost is that of its spans.
"""

import contextlib
import json
import os
import pathlib
import pty
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import machinery

SPAN_MICROSECONDS = 0.05  # framework/trace/README.md


class Readers:
    """All of them, while the `with` block lasts."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def __enter__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.terminal, inner = pty.openpty()
        quiet = {"cwd": self.folder, "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes = [
            subprocess.Popen([self.program, "track", "watched", "--to", "prometheus", "--port", str(self.port)], **quiet),
            subprocess.Popen([self.program, "track", "watched", "--to", "tensorboard"], **quiet),
            subprocess.Popen([self.program, "watch", "watched"], cwd=self.folder, stdin=inner, stdout=inner, stderr=inner,
                             start_new_session=True),
        ]
        os.close(inner)
        self.ending = threading.Event()
        self.asked, self.deaf = 0, None
        self.asking = threading.Thread(target=self.ask)
        self.asking.start()
        return self

    def ask(self):
        while not self.ending.wait(1):
            subprocess.run([self.program, "status", "watched", "--json"], cwd=self.folder, check=True, capture_output=True)
            with contextlib.suppress(OSError):  # it has not begun to listen
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5).read()
                self.asked += 1
                if self.deaf is None:
                    self.deaf = socket.create_connection(("127.0.0.1", self.port))
                    self.deaf.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")

    def __exit__(self, *_):
        self.ending.set()
        self.asking.join()
        if self.deaf is not None:
            self.deaf.close()
        os.close(self.terminal)  # watch may wait for it to take more
        for process in self.processes:
            process.kill()
            process.wait()


def window(metrics, seconds):
    """Median of the steps that begin meanwhile."""
    at = metrics.stat().st_size
    time.sleep(seconds)
    with open(metrics, "rb") as file:
        file.seek(at)
        steps = [json.loads(line)["seconds"] for line in file.read().splitlines()]
    if len(steps) < 2:
        sys.exit(f"{len(steps)} steps in {seconds} s: state a longer --window")
    return statistics.median(steps[1:])


def spans_of_a_step(run):
    events = json.loads((run / "trace.json").read_text())["traceEvents"]
    spans = sum(event["ph"] == "X" for event in events)
    updates = sum(event["ph"] == "X" and event["name"] == "update" for event in events)
    return spans / updates  # of one process


def main():
    options = machinery.options_of(__doc__, rounds=6, window=8.0)
    if options.quick:
        options.rounds, options.window = 1, 4
    program = options.bin / "strait"
    print(f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="strait-watching-") as name:
        folder = pathlib.Path(name)
        machinery.make_bench(folder, 1, options.quick)
        machinery.write_recipe(folder, "watched", {"pipeline.stages": 2, "train.steps": 10**6, "checkpoint.every": 0})
        command = [program, "run", "watched.toml", "--json"]
        metrics = folder / "runs/watched/metrics.jsonl"
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as run:
            next(line for line in run.stdout if json.loads(line)["event"] == "step")
            drain = threading.Thread(target=lambda: [None for _ in run.stdout])
            drain.start()
            ratios, alone, asked = [], [], 0
            for _ in range(options.rounds):
                before = window(metrics, options.window)
                with Readers(program, folder) as readers:
                    time.sleep(2)  # Python starts
                    with_readers = window(metrics, options.window)
                asked += readers.asked
                after = window(metrics, options.window)
                alone += [before, after]
                ratios.append(with_readers / ((before + after) / 2))
            run.send_signal(signal.SIGINT)
            drain.join()
        if run.returncode != 0:
            sys.exit(f"{command} ended with {run.returncode}")
        step, spans = statistics.median(alone), spans_of_a_step(metrics.parent)
    ratios.sort()
    print(f"a step alone: {1000 * step:.1f} ms; Prometheus was asked {asked} times")
    print(f"a step with all readers / alone: {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}, "
          f"{len(ratios)} rounds)")
    print(f"spans of a process in a step: {spans:.0f}, at {SPAN_MICROSECONDS} us: "
          f"{100 * spans * SPAN_MICROSECONDS / 1e6 / step:.4f} % of it")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
