"""Real runs for the process tests: a tiny model and its data in a temporary directory, the real
`strait` started there, its files read back, and the proof that nothing of it is left.

Not a test itself. Nothing here sleeps to let things happen: everything waits for a fact (a line in
a file, the end of a process) with a deadline.
"""

import contextlib
import ctypes
import hashlib
import json
import os
import pathlib
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("STRAIT_BIN", ROOT / "build" / "release" / "bin")).absolute()
LOOK_EVERY = 0.005  # seconds between two looks at a file
CAMPAIGN = bool(os.environ.get("STRAIT_CAMPAIGNS"))  # tests do all that they do a part of otherwise
campaign = unittest.skipUnless(CAMPAIGN, "a campaign: STRAIT_CAMPAIGNS=1 (./strait test --all)")  # of a whole test
TIMEOUT = 60  # seconds until a test gives up on something that should take a moment

_PR_SET_CHILD_SUBREAPER = 36


def main():
    """Runs the tests of the calling script, or skips them all where the product is not built."""
    if not (BIN / "strait").exists():
        print(f"skipped: there is no {BIN / 'strait'}; build first, or set STRAIT_BIN")
        sys.exit(77)
    # Orphans become our children instead of init's: so we see all that a run leaves behind.
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        print(f"skipped: prctl: {os.strerror(ctypes.get_errno())}")
        sys.exit(77)
    unittest.main(module="__main__", verbosity=2)


# Files that runs read.


def toml(value):
    """A value as TOML says it; of dicts, inline tables."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def recipe_text(settings):
    """settings: dotted key -> value, None leaves the key out."""
    return "".join(f"{key} = {toml(value)}\n" for key, value in settings.items() if value is not None)


def write_safetensors(path, tensors, header=None):
    """tensors: name -> (dtype, shape, bytes). A header given by hand replaces the true one."""
    if header is None:
        header, at = {}, 0
        for name, (dtype, shape, data) in tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
            at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    body = b"".join(data for _, _, data in tensors.values())
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


def read_safetensors(path):
    """name -> (dtype, shape, bytes)."""
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, info in header.items():
        first, last = info["data_offsets"]
        tensors[name] = (info["dtype"], info["shape"], data[8 + size + first : 8 + size + last])
    return tensors


def hash_of(path):
    """For comparisons whose failure is to name the file, not its bytes."""
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def gpt2_shapes(config):
    width, inner = config["n_embd"], 4 * config["n_embd"]
    shapes = {
        "transformer.wte.weight": [config["vocab_size"], width],
        "transformer.wpe.weight": [config["n_positions"], width], "transformer.ln_f.weight": [width],
        "transformer.ln_f.bias": [width],
    }
    for i in range(config["n_layer"]):
        for name, shape in {
            "ln_1.weight": [width], "ln_1.bias": [width], "attn.c_attn.weight": [width, 3 * width],
            "attn.c_attn.bias": [3 * width], "attn.c_proj.weight": [width, width], "attn.c_proj.bias": [width],
            "ln_2.weight": [width], "ln_2.bias": [width], "mlp.c_fc.weight": [width, inner], "mlp.c_fc.bias": [inner],
            "mlp.c_proj.weight": [inner, width], "mlp.c_proj.bias": [width],
        }.items():
            shapes[f"transformer.h.{i}.{name}"] = shape
    return shapes


def zeros(shape):
    count = 4
    for size in shape:
        count *= size
    return ("F32", list(shape), bytes(count))


def processes():
    """pid -> (parent, state, start time) of every process of the machine."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            text = pathlib.Path("/proc", entry, "stat").read_text(errors="replace")
        except OSError:
            continue  # it ended while we looked
        fields = text[text.rindex(")") + 2 :].split()
        found[int(entry)] = (int(fields[1]), fields[0], fields[19])
    return found


def alive(pid):
    return pid in (table := processes()) and table[pid][1] not in "ZX"


def descendants(table, root):
    children = {}
    for pid, (parent, _, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found, queue = [], [root]
    while queue:
        for child in children.get(queue.pop(), []):
            found.append(child)
            queue.append(child)
    return found


def scaled_timeout(seconds):
    """A timeout for an idle machine, scaled by the load of this one."""
    return seconds * max(1, os.getloadavg()[0] / os.cpu_count())


def wait_for(what, look, seconds=TIMEOUT):
    """Polls look() and returns its first true value; fails at the timeout. Looks for a third of the time at most, because
    the run that is waited for needs the processor, too."""
    begun = time.monotonic()
    while True:
        looked = time.monotonic()
        answer = look()
        if answer:
            return answer
        now = time.monotonic()
        if now - begun > scaled_timeout(seconds):
            raise AssertionError(f"timed out after {scaled_timeout(seconds):.0f} s: {what}")
        select.select([], [], [], max(LOOK_EVERY, 2 * (now - looked)))


def has_stopped(pid):
    try:
        stats = [stat.read_text() for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return False  # a thread ended while we looked
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def stop_process(pid):
    """Returns when every thread has stopped: until the one that takes the signal has its turn, the others run on."""
    os.kill(pid, signal.SIGSTOP)
    wait_for(f"process {pid} to stop", lambda: has_stopped(pid))


def is_unfinished(path):
    """Whether a write was interrupted. Incomplete checkpoints do not count: the next start or checkpoint
    removes them."""
    folder = path.parent
    torn = folder.parent.name == "checkpoints" and not (folder / "manifest.json").exists()
    return ".tmp-" in path.name and not torn


class Run:
    """The directory of a run, read as scripts of users do."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def lines(self, name):
        with contextlib.suppress(FileNotFoundError):
            text = (self.path / name).read_text()
            return [json.loads(line) for line in text.splitlines(True) if line.endswith("\n")]
        return []

    def metrics(self):
        return self.lines("metrics.jsonl")

    def newest_step(self):
        """Of the last line of metrics.jsonl, the only one that is read; 0: there is none."""
        with contextlib.suppress(FileNotFoundError), open(self.path / "metrics.jsonl", "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - (1 << 16)))
            whole = file.read().split(b"\n")[:-1]
            return json.loads(whole[-1])["step"] if whole else 0
        return 0

    def events(self, name=None):
        return [e for e in self.lines("events.jsonl") if name is None or e["event"] == name]

    def report_data(self):
        """What report.html draws; None: there is no report yet."""
        with contextlib.suppress(FileNotFoundError):
            _, _, after = (self.path / "report.html").read_text().partition('id="data">')
            return json.loads(after.partition("</script>")[0])
        return None

    def measured_step(self):
        """The timeline of the report that was measured; None: there is none yet."""
        for section in (self.report_data() or {"sections": []})["sections"]:
            for one in section["figures"]:
                if one.get("measured", {}).get("rows"):
                    return one["measured"]
        return None

    def status(self):
        return json.loads((self.path / "status.json").read_text())

    def plan(self):
        return json.loads((self.path / "plan.json").read_text())["plan"]

    def outcome(self):
        return self.events("ended")[-1]

    def curve(self):
        """step -> values that must be bitwise equal for every split."""
        lines = self.metrics()
        curve = {m["step"]: (m["loss"], m["grad_norm"], m["learning_rate"]) for m in lines}
        assert len(curve) == len(lines), f"a step twice in {self.path}/metrics.jsonl"
        return curve

    def checkpoints(self):
        """The complete ones: a stage that is killed while it writes leaves a folder without manifest."""
        found = (self.path / "checkpoints").glob("step-*/manifest.json")
        steps = (p.parent.name[5:] for p in found)
        return sorted(int(step) for step in steps if step.isdigit())

    def state(self, step):
        """All that a checkpoint holds, by global names: weights and moments."""
        tensors = {}
        for shard in sorted((self.path / "checkpoints" / f"step-{step}").glob("*.safetensors")):
            for name, tensor in read_safetensors(shard).items():
                if tensors.setdefault(name, tensor) != tensor:
                    raise AssertionError(f"two stages hold different bits of {name}")
        return tensors

    def learnt(self, step):
        """What assert_same_bits() compares."""
        return self.curve(), self.state(step)

    def memory_directories(self):
        """Of all its hosts on this machine."""
        name = json.loads((self.path / "plan.json").read_text())["run"]
        return [*pathlib.Path("/dev/shm").glob(f"strait-{name}-*")]

    def processes(self):
        """"stage.replica" -> pid, of the newest start, once all have connected."""
        pids = {}
        for event in self.events():
            if event["event"] == "started":
                pids = {}
            if event["event"] == "connected":
                pids[event["process"]] = event["pid"]
        return pids

    def stages(self):
        """stage -> pid, of the first replica."""
        return {int(name[:-2]): pid for name, pid in self.processes().items() if name[-2:] == ".0"}


class Launched:
    """A `strait` that runs beside the test."""

    def __init__(self, case, words, run=None, program=None, **popen):
        self.case = case
        self.run = run
        self.former_trainings = len(run.events("training")) if run else 0
        self.log = case.home / f"output-{len(case.started)}.txt"
        with open(self.log, "wb") as out:
            popen.setdefault("stdout", out)
            popen.setdefault("stderr", subprocess.STDOUT)
            self.process = subprocess.Popen(
                [program or case.program, *map(str, words)], cwd=case.home, stdin=subprocess.DEVNULL,
                start_new_session=True, **popen,
            )
        case.started.append(self)

    def output(self):
        return self.log.read_text()

    def wait_for(self, what, look, seconds=TIMEOUT):
        """look() becomes true while the program runs."""

        def answer():
            found = look()
            if not found and self.process.poll() is not None:
                found = look()
                if not found:
                    code = self.process.returncode
                    raise AssertionError(f"ended ({code}) before {what}:\n{self.output()}")
            return found

        try:
            return wait_for(what, answer, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output()}") from None

    def at_training(self):
        """Of this program: until then the metrics of a resumed run are those of its former start."""
        self.wait_for("training", lambda: len(self.run.events("training")) > self.former_trainings)

    def at_step(self, step):
        self.at_training()
        self.wait_for(f"step {step}", lambda: self.run.newest_step() >= step)

    def at_checkpoint(self, step):
        """Of this step or a later one: a slow disk has it long after the step."""
        self.wait_for(f"a checkpoint of step {step}", lambda: self.run.checkpoints()[-1:] >= [step])

    def at_event(self, name):
        self.wait_for(f"event {name}", lambda: self.run.events(name))

    def signal(self, number):
        self.case.launcher_was_killed |= number == signal.SIGKILL
        self.process.send_signal(number)

    def end_by(self, number, code):
        """A signal ends it, with this exit code."""
        self.signal(number)
        self.case.assertEqual(self.end(), code, self.output())

    def end(self, seconds=TIMEOUT):
        """The exit code."""
        try:
            return self.process.wait(scaled_timeout(seconds))
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"still there after {late.timeout:.0f} s:\n{self.output()}") from None


class RunCase(unittest.TestCase):
    """Each test has a home of its own with a tiny model and data; afterwards no process and no
    half-written file may be left."""

    CONFIG = {
        "model_type": "gpt2", "vocab_size": 257, "n_positions": 64, "n_embd": 32, "n_layer": 4, "n_head": 2,
        "embd_pdrop": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1, "tie_word_embeddings": True,
    }
    SETTINGS = {
        "seed": 7, "model.path": "model", "model.weights": "random", "data.train": "train.jsonl",
        "data.tokenizer": "bytes", "data.row": 32, "pipeline.stages": 2, "pipeline.threads": 1, "train.steps": 20,
        "train.batch": 8, "train.micro_batch": 2, "train.learning_rate": 0.003, "train.warmup": 3, "train.clip": 0.5,
        "checkpoint.every": 0,
    }

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="strait-test-")
        self.addCleanup(holder.cleanup)
        self.home = pathlib.Path(holder.name)
        self.program = BIN / "strait"
        self.started = []
        self.launcher_was_killed = False
        self.addCleanup(self.assert_no_processes_left)
        self.write_model("model")
        self.write_data("train.jsonl")

    def write_model(self, name, weights=False, **changes):
        config = {**self.CONFIG, **changes}
        folder = self.home / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        if weights:
            tensors = {key: zeros(shape) for key, shape in gpt2_shapes(config).items()}
            write_safetensors(folder / "model.safetensors", tensors)
        return folder

    def mount_tmpfs(self, folder, *options):
        """A disk of its own for this folder. Options: of mount."""
        folder.mkdir(exist_ok=True)
        words = ["mount", "-t", "tmpfs", *options, "none", folder]
        done = subprocess.run(words, capture_output=True)
        if done.returncode != 0:
            self.skipTest(f"cannot mount here: {done.stderr.decode().strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", folder], check=True)

    def write_data(self, name, records=96):
        words = ["link", "stage", "step", "boundary", "codec", "plan", "run", "row"]
        lines = []
        for i in range(records):
            prompt = f"{words[i % 8]} {words[i // 8 % 8]} "
            lines.append(json.dumps({"prompt": prompt, "completion": f"{i * 37 % 101}\n"}))
        (self.home / name).write_text("\n".join(lines) + "\n")

    def write_recipe(self, name, settings=None, text=None):
        """A recipe called `name`, of SETTINGS and these (see recipe_text)."""
        path = self.home / f"{name}.toml"
        if text is None:
            text = recipe_text({**self.SETTINGS, **(settings or {})})
        path.write_text(text)
        return path.name

    def launch(self, *words, name=None, **popen):
        return Launched(self, words, self.run_of(name) if name else None, **popen)

    def strait(self, *words, seconds=TIMEOUT):
        """Runs to the end: (exit code, stdout, stderr)."""
        done = subprocess.run(
            [self.program, *map(str, words)], cwd=self.home, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=scaled_timeout(seconds),
        )
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def ended(self, code, *words):
        """Runs to the end, with this code: (stdout, stderr)."""
        got, out, err = self.strait(*words)
        self.assertEqual(got, code, f"{words}\n{out}{err}")
        return out, err

    def ok(self, *words):
        """Runs to the end, with code 0: stdout."""
        return self.ended(0, *words)[0]

    def run_of(self, name):
        return Run(self.home / "runs" / name)

    def train(self, name, settings=None, code=0):
        """A whole run: its directory."""
        got, out, err = self.strait("run", self.write_recipe(name, settings))
        self.assertEqual(got, code, out + err)
        if code == 0:
            self.assert_memory_as_planned(out)
        return self.run_of(name)

    def assert_memory_as_planned(self, out, at_least=False):
        """No process that the last lines of a run name took more than was planned for it, by a tenth
        or 30 MB; `at_least`: nor less. Caches and copies of checkpoints are planned at their most."""
        (line,) = re.findall(r"^memory .*$", out, re.MULTILINE)
        unit = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
        size = r"([\d.]+) ([kMG]?B)"
        found = re.findall(rf"(\d+\.\d+) {size} of {size} planned", line)
        self.assertTrue(found, line)
        for process, taken, taken_unit, planned, planned_unit in found:
            planned_bytes = float(planned) * unit[planned_unit]
            off = float(taken) * unit[taken_unit] - planned_bytes
            off = abs(off) if at_least else off
            self.assertLess(off, max(0.1 * planned_bytes, 30e6), f"{process}: {line}")

    def rewind_run(self, run, step):
        """Removes what came after this checkpoint, as if the run had died before the next one."""
        for later in run.checkpoints():
            if later > step:
                shutil.rmtree(run.path / "checkpoints" / f"step-{later}")
        self.assertEqual(run.checkpoints(), [step])

    def resumed(self, run, *words):
        return self.ok("resume", run.path.relative_to(self.home), *words)

    def assert_same_bits(self, expected, got):
        """Two of (curve by step, state by name)."""
        self.assertEqual(sorted(got[0]), sorted(expected[0]))
        for step in expected[0]:
            self.assertEqual(got[0][step], expected[0][step], f"step {step}: loss, norm, rate")
        self.assertEqual(sorted(got[1]), sorted(expected[1]))
        self.assertEqual([name for name in got[1] if got[1][name] != expected[1][name]], [])

    def assert_evaluates_as_trained(self, run, steps):
        """The run has been evaluated at these steps, and `strait eval` finds what the last one did."""
        evaluations = run.events("evaluated")
        self.assertEqual([e["step"] for e in evaluations], steps)
        out = self.ok("eval", run.path, "--json")
        self.assertAlmostEqual(json.loads(out)["loss"], evaluations[-1]["loss"], places=5)

    def start(self, name, settings=None, **popen):
        return self.launch("run", self.write_recipe(name, settings), name=name, **popen)

    def run_processes(self):
        table = processes()
        return {pid: table[pid] for pid in descendants(table, os.getpid()) if table[pid][1] not in "ZX"}

    def wait_for_no_processes(self, seconds=10):
        """Waits until no process of any run is left."""
        wait_for("the end of every process of the run", lambda: not self.run_processes(), seconds)

    def assert_no_processes_left(self):
        left = self.run_processes()
        what = []
        for pid in left:
            with contextlib.suppress(OSError):
                line = pathlib.Path("/proc", str(pid), "cmdline").read_bytes()
                what.append(f"{pid}: {line.replace(bytes(1), b' ').decode(errors='replace')}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # Reaps orphans that this process inherited, and those killed above.
        for one in self.started:
            one.process.wait()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG if not left else 0)[0]:
                pass
        self.assertEqual(what, [], "processes were left behind")
        self.assertEqual(self.leftover_files(), [], "half-written files were left behind")

    def leftover_files(self):
        """Temporary files that no later start removes or replaces."""
        found = []
        for path in self.home.rglob("*"):
            killed_at = path.name == "status.json.next" or path.name.startswith("report.html.tmp-")
            if killed_at and self.launcher_was_killed:
                continue
            if is_unfinished(path) or path.suffix == ".next":
                found.append(str(path))
        return found
