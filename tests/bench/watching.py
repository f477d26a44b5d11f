"""What it costs a run to be watched: steps with and without readers of its files, in turn, in one run. See README.md.

usage: watching.py [--bin FOLDER] [--rounds 6] [--window 8] [--steps 40] [--readers NAME ...] [--consoles 3]
                   [--parts starts readers consoles launcher] [--starts 20] [--other FOLDER] [--quick]

Two stages, one thread each. Readers, all together or those that are named: strait track to Prometheus, which is asked
every second, and a connection to it that never reads; strait track to TensorBoard; strait watch on a terminal that
nobody reads; strait status every second. Consoles: whole runs, in turn, whose output goes nowhere, to a terminal, to
one that is not read, and to a pipe that is not read. The trace has no switch: its cost is that of its spans. Nor has
the report: its cost is the processor time of the launcher's thread of the lowest priority. Starts: of commands that only
show something, also of the programs of another build, in turns.
"""

import contextlib
import json
import os
import pathlib
import pty
import resource
import shutil
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


def seconds_in(stat):
    fields = pathlib.Path(stat).read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def processor_seconds(pid):
    """Of the process's threads: the usual ones, and those of the lowest priority."""
    usual, lowest = 0, 0
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        nice = int((thread / "stat").read_text().rpartition(")")[2].split()[16])
        seconds = seconds_in(thread / "stat")
        usual, lowest = (usual, lowest + seconds) if nice == 19 else (usual + seconds, lowest)
    return usual, lowest


PARTS = dict.fromkeys(("starts", "readers", "consoles", "launcher"))
STARTS = (["--version"], ["help"], ["help", "--man"], ["explain", "train.clip"], ["status"], ["status", "saving"])
READERS = dict.fromkeys(("prometheus", "tensorboard", "watch", "status"))


class Readers:
    """Those that are named, while the `with` block lasts."""

    def __init__(self, program, folder, names):
        self.program, self.folder, self.names = program, folder, names

    def __enter__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.terminal, inner = pty.openpty()
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        screen = {"stdin": inner, "stdout": inner, "stderr": inner, "start_new_session": True}
        commands = {"prometheus": (["track", "watched", "--to", "prometheus", "--port", str(self.port)], quiet),
                    "tensorboard": (["track", "watched", "--to", "tensorboard"], quiet),
                    "watch": (["watch", "watched"], screen)}
        self.processes = {name: subprocess.Popen([self.program, *words], cwd=self.folder, **files)
                          for name, (words, files) in commands.items() if name in self.names}
        os.close(inner)
        self.ending = threading.Event()
        self.asked, self.deaf, self.status_seconds = 0, None, 0
        self.asking = threading.Thread(target=self.ask)
        self.asking.start()
        return self

    def ask(self):
        while not self.ending.wait(1):
            if "status" in self.names:
                status = [self.program, "status", "watched", "--json"]
                before = children_seconds()
                subprocess.run(status, cwd=self.folder, check=True, capture_output=True)
                self.status_seconds += children_seconds() - before
            if "prometheus" not in self.names:
                continue
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
        for process in self.processes.values():
            process.kill()
            process.wait()

    def processor_seconds(self):
        # Of whole processes: a thread that has answered Prometheus is gone.
        seconds = {name: seconds_in(f"/proc/{process.pid}/stat") for name, process in self.processes.items()}
        return seconds | ({"status": self.status_seconds} if "status" in self.names else {})


def children_seconds():
    """Of those that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


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


def show_ratio(name, ratios):
    middle, rounds = statistics.median(ratios), len(ratios)
    print(f"{name}: {middle:.3f} ({min(ratios):.3f} to {max(ratios):.3f}, {rounds} rounds)", flush=True)


def spans_of_a_step(run):
    events = json.loads((run / "trace.json").read_text())["traceEvents"]
    spans = sum(event["ph"] == "X" for event in events)
    updates = sum(event["ph"] == "X" and event["name"] == "update" for event in events)
    return spans / updates  # of one process


class Console:
    """Where a run's output goes. `stdout` is for the run, and close() ends what reads it."""

    KINDS = {"nowhere": None, "terminal": True, "terminal, unread": False, "pipe, unread": False}

    def __init__(self, kind):
        self.outer = None
        if kind == "nowhere":
            self.stdout = os.open(os.devnull, os.O_WRONLY)
        else:
            self.outer, self.stdout = pty.openpty() if "terminal" in kind else os.pipe()
        self.reading = threading.Thread(target=self.read)
        if self.KINDS[kind]:
            self.reading.start()

    def read(self):
        with contextlib.suppress(OSError):  # the other end has closed
            while os.read(self.outer, 1 << 16):
                pass

    def close(self):
        """Reads what is left, so that the run can end."""
        os.close(self.stdout)
        if self.outer is None:
            return
        if not self.reading.is_alive():
            self.reading.start()
        self.reading.join()
        os.close(self.outer)


def step_on_console(program, folder, kind, steps):
    """Of a whole run: the median of its steps, and the processor time of the launcher a step."""
    metrics = folder / "runs/console/metrics.jsonl"
    shutil.rmtree(metrics.parent, ignore_errors=True)  # its metrics would be taken for those of this run
    console = Console(kind)
    command = [program, "run", "console.toml", "--set", f"train.steps={steps}"]
    # A session of its own, because a terminal that closes would end it.
    quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = subprocess.Popen(command, cwd=folder, stdout=console.stdout, start_new_session=True, **quiet)
    began, done = None, 0
    while run.poll() is None and done < steps:
        time.sleep(0.2)
        done = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
        if done > 0:
            taken = sum(processor_seconds(run.pid))
            began = began or (done, taken)
    console.close()
    if run.wait() != 0:
        sys.exit(f"{command} ended with {run.returncode}")
    seconds = [json.loads(line)["seconds"] for line in metrics.read_text().splitlines()]
    return statistics.median(seconds[2:]), (taken - began[1]) / max(1, steps - began[0])


def measure_consoles(program, folder, rounds, steps):
    machinery.write_recipe(folder, "console", {"pipeline.stages": 2, "checkpoint.every": 0})
    ratios = {kind: [] for kind in Console.KINDS if kind != "nowhere"}
    taken = {kind: [] for kind in Console.KINDS}
    for _ in range(rounds):
        took = {kind: step_on_console(program, folder, kind, steps) for kind in Console.KINDS}
        for kind, found in ratios.items():
            found.append(took[kind][0] / took["nowhere"][0])
        for kind, found in taken.items():
            found.append(1000 * took[kind][1])
    for kind, found in ratios.items():
        show_ratio(f"a step with a console, {kind} / nowhere", found)
    for kind, found in taken.items():
        print(f"processor time of the launcher, console {kind}: {statistics.median(found):.2f} ms a step", flush=True)


def measure_launcher(program, folder, steps):
    """What the launcher and the report take: whole runs, with a checkpoint every ten steps."""
    every = 10
    machinery.write_recipe(folder, "saving", {"pipeline.stages": 2, "train.steps": steps, "checkpoint.every": every})
    taken, done, begun = (0, 0), 0, time.monotonic()
    command = [program, "run", "saving.toml", "--json"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as run:
        first = None
        for line in run.stdout:
            if json.loads(line)["event"] != "step":
                continue
            done = json.loads(line)["step"]
            taken = processor_seconds(run.pid)
            if first is None:
                first, begun = (done, *taken), time.monotonic()
            passed = time.monotonic() - begun
    if done != steps or run.returncode != 0:
        sys.exit(f"the run with checkpoints ended with {run.returncode} at step {done}")
    count = done - first[0]
    usual, lowest = taken[0] - first[1], taken[1] - first[2]
    print(f"processor time of the launcher: {1000 * usual / count:.2f} ms a step of {1000 * passed / count:.1f} ms; of "
          f"its thread of the lowest priority, which writes the report: {1000 * lowest / (count // every):.1f} ms a "
          "checkpoint")


def measure_starts(program, other, folder, count):
    """Processor time of commands, on the run that measure_launcher() has left, if it has."""
    programs = [program] + ([other / "strait"] if other else [])
    for words in STARTS:
        taken = {one: [] for one in programs}
        for _ in range(count):
            for one, found in taken.items():
                before = children_seconds()
                subprocess.run([one, *words], cwd=folder, check=True, capture_output=True)
                found.append(children_seconds() - before)
        text = ", ".join(f"{1000 * statistics.median(found):.1f} ms" + (f" of {one}" if one != program else "")
                         for one, found in taken.items())
        print(f"processor time of strait {' '.join(words)}: {text}", flush=True)


def measure_readers(program, folder, options):
    machinery.write_recipe(folder, "watched", {"pipeline.stages": 2, "train.steps": 10**6, "checkpoint.every": 0})
    command = [program, "run", "watched.toml", "--json"]
    metrics = folder / "runs/watched/metrics.jsonl"
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as run:
        next(line for line in run.stdout if json.loads(line)["event"] == "step")
        drain = threading.Thread(target=lambda: [None for _ in run.stdout])
        drain.start()
        ratios, alone, asked, taken = [], [], 0, dict.fromkeys(options.readers, 0)
        for _ in range(options.rounds):
            before = window(metrics, options.window)
            with Readers(program, folder, options.readers) as readers:
                time.sleep(2)  # Python starts
                began = readers.processor_seconds()
                with_readers = window(metrics, options.window)
                for name, seconds in readers.processor_seconds().items():
                    taken[name] += seconds - began[name]
            asked += readers.asked
            after = window(metrics, options.window)
            alone += [before, after]
            ratios.append(with_readers / ((before + after) / 2))
        run.send_signal(signal.SIGINT)
        drain.join()
    if run.returncode != 0:
        sys.exit(f"{command} ended with {run.returncode}")
    step, spans = statistics.median(alone), spans_of_a_step(metrics.parent)
    print(f"a step alone: {1000 * step:.1f} ms; Prometheus was asked {asked} times")
    show_ratio(f"a step with {', '.join(options.readers)} / alone", ratios)
    for name, seconds in taken.items():
        print(f"processor time of {name}: {1000 * seconds / options.window / options.rounds:.1f} ms a second")
    print(f"spans of a process in a step: {spans:.0f}, at {SPAN_MICROSECONDS} us: "
          f"{100 * spans * SPAN_MICROSECONDS / 1e6 / step:.4f} % of it", flush=True)


def main():
    options = machinery.options_of(__doc__, rounds=6, window=8.0, steps=40, readers=READERS, consoles=3, parts=PARTS,
                                   starts=20, other=None)
    if options.quick:
        options.rounds, options.window, options.steps, options.consoles, options.starts = 1, 4, 20, 1, 2
    other = pathlib.Path(options.other).resolve() if options.other else None
    program = options.bin / "strait"
    print(f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="strait-watching-") as name:
        folder = pathlib.Path(name)
        machinery.make_bench(folder, 1, options.quick)
        if "readers" in options.parts:
            measure_readers(program, folder, options)
        if "consoles" in options.parts:
            measure_consoles(program, folder, options.consoles, options.steps)
        if "launcher" in options.parts or "starts" in options.parts:
            measure_launcher(program, folder, options.steps)
        if "starts" in options.parts:
            measure_starts(program, other, folder, options.starts)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
