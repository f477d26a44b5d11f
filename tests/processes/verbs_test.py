"""Verbs that look at runs from outside: compare, track, and help, explain and completion."""

import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request

import runs

PYTHON = os.environ.get("STRAIT_PYTHON", sys.executable)


def has_package(name):
    found = subprocess.run([PYTHON, "-c", f"import {name}"], capture_output=True).returncode == 0
    if not found:
        print(f"skipped: {PYTHON} has no {name}, so it is not asked what it has got")
    return found


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=runs.TIMEOUT) as answer:
        return answer.read().decode()


def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def events_of(path):
    """The records of an event file of TensorBoard, whose checksums fit."""
    data = path.read_bytes()
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        event = data[12 : 12 + size]
        assert struct.unpack("<I", data[8:12])[0] == masked_crc(data[:8]), path
        assert struct.unpack("<I", data[12 + size : 16 + size])[0] == masked_crc(event), path
        yield event
        data = data[16 + size :]


# Of a user of TensorBoard: prints step and value of each scalar of the tag.
READ_SCALARS = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1]).Reload()
print(json.dumps([[one.step, one.value] for one in events.Scalars(sys.argv[2])]))
"""


class Verbs(runs.RunCase):
    def test_metrics_are_sent_to_trackers_once(self):
        run = self.train("tracked", {"train.steps": 6, "data.eval": "train.jsonl", "train.eval_every": 3})
        steps = run.outcome()["step"]
        folder = self.enterContext(tempfile.TemporaryDirectory())
        env = {**os.environ, "STRAIT_PYTHON": PYTHON, "HOME": folder, "WANDB_MODE": "offline", "WANDB_DIR": folder,
               "MLFLOW_TRACKING_URI": f"file://{folder}/mlruns", "MLFLOW_ALLOW_FILE_STORE": "true",
               "TRACKIO_DIR": f"{folder}/trackio"}
        for to in ("wandb", "mlflow", "trackio"):
            words = [self.program, "track", "tracked", "--to", to, "--project", "tests"]
            done = subprocess.run(words, cwd=self.home, env=env, capture_output=True, text=True)
            if not has_package(to):
                self.assertEqual(done.returncode, 10)
                self.assertIn(f"{to} is not installed for ", done.stderr)
                continue
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"runs/tracked: {steps} steps sent to {to}, up to step {steps}; run ", done.stdout)
            again = subprocess.run(words, cwd=self.home, env=env, capture_output=True, text=True)
            self.assertIn(f"runs/tracked: 0 steps sent to {to}, up to step {steps}; run ", again.stdout + again.stderr)

    def scalars(self, run, tag):
        done = subprocess.run([PYTHON, "-c", READ_SCALARS, run.path, tag], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_tensorboard_reads_what_a_run_wrote_and_a_resume_adds(self):
        run = self.train("boards", {"train.steps": 4, "data.eval": "train.jsonl", "train.eval_every": 2})
        self.ok("track", "boards", "--to", "tensorboard")
        (file,) = run.path.glob("events.out.tfevents.*")
        events = list(events_of(file))
        self.assertEqual(events[0][9:], b"\x1a\x0dbrain.Event:2")
        self.assertEqual([event[9:11] for event in events[1:]], [bytes([0x10, step]) for step in range(1, 5)])
        for tag in (b"train/loss", b"train/idle/1.0", b"boundary/sent_bytes/0.0>1.0/forward"):
            self.assertTrue(all(tag in event for event in events[1:]), tag)
        self.resumed(run, "--set", "train.steps=6")
        self.assertIn("2 steps sent to tensorboard, up to step 6", self.ok("track", "boards", "--to", "tensorboard"))
        if has_package("tensorboard"):
            losses = self.scalars(run, "train/loss")
            self.assertEqual([step for step, _ in losses], [m["step"] for m in run.metrics()])
            for (_, got), line in zip(losses, run.metrics()):
                self.assertAlmostEqual(got, line["loss"], places=4)
            self.assertEqual([step for step, _ in self.scalars(run, "eval/loss")],
                             sorted({e["step"] for e in run.events("evaluated")}))

    def test_prometheus_scrapes_a_live_run(self):
        launched = self.start("live", {"train.steps": 100_000, "checkpoint.every": 2, "data.eval": "train.jsonl",
                                       "train.eval_every": 2})
        launched.at_checkpoint(2)
        port = free_port()
        words = ("track", "live", "--to", "prometheus", "--port", port)
        tracker = self.launch(*words)
        url = f"http://127.0.0.1:{port}/metrics"

        def page():
            try:
                text = get(url)
            except OSError:
                return None  # it does not listen yet
            # On a busy machine the first lines of a step have no idle times yet.
            return text if "strait_checkpoint_step" in text and "strait_idle" in text else None

        text = tracker.wait_for("a page with a checkpoint and a whole step", page)
        for name in ("strait_loss", "strait_tokens_total", 'strait_idle{process="1.0"}', "strait_evaluation_loss",
                     'strait_boundary_sent_bytes_total{boundary="0.0>1.0",direction="forward"}', "strait_restarts_total"):
            self.assertRegex(text, rf"(?m)^{re.escape(name)} [\d.e+-]+$")
        with self.assertRaises(urllib.error.HTTPError):
            get(f"http://127.0.0.1:{port}/")
        code, _, err = self.strait(*words)
        self.assertEqual((code, f"strait: port {port} of 127.0.0.1 cannot be bound" in err), (10, True), err)
        self.scrape(port)
        launched.end_by(signal.SIGINT, 0)
        self.assertEqual(tracker.end(), 0, tracker.output())
        self.assertIn("strait: no run is live in runs/live, and Prometheus asks for", self.ended(10, *words)[1])

    def test_what_cannot_be_tracked_is_one_sentence(self):
        run = self.train("odd", {"train.steps": 3})
        with open(run.path / "metrics.jsonl", "ab") as metrics:
            metrics.write(b'{"step": 4, "lo\n[5]\n{"loss": 1}\n\xff\n')
        self.assertIn("3 steps sent to tensorboard, up to step 3", self.ok("track", "odd", "--to", "tensorboard"))
        (run.path / "tracked.json").write_text("{")
        self.assertRegex(self.ended(32, "track", "odd", "--to", "tensorboard")[1],
                         r"\Astrait: runs/odd/tracked.json is damaged [^\n]*\n\Z")
        (run.path / "tracked.json").unlink()
        (run.path / "tracked.next").mkdir()  # as on a disk that cannot be written
        self.assertRegex(self.ended(31, "track", "odd", "--to", "tensorboard")[1],
                         r"\Astrait: cannot use runs/odd/tracked.next: [^\n]*\n\Z")
        (run.path / "tracked.next").rmdir()

    def scrape(self, port):
        """By the real one, where it is installed."""
        program = shutil.which("prometheus")
        if program is None:
            print("skipped: there is no prometheus here (Debian: apt install prometheus)")
            return
        own = free_port()
        config = {"scrape_configs": [{"job_name": "strait", "scrape_interval": "1s", "scrape_timeout": "1s",
                                      "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}]}
        (self.home / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        words = ["--config.file=prometheus.yml", "--storage.tsdb.path=tsdb", f"--web.listen-address=127.0.0.1:{own}"]
        query = urllib.parse.urlencode({"query": "strait_loss"})

        def loss():
            try:
                return json.loads(get(f"http://127.0.0.1:{own}/api/v1/query?{query}"))["data"]["result"]
            except OSError:
                return None  # it has not begun to listen

        with open(self.home / "prometheus.log", "wb") as log, \
                subprocess.Popen([program, *words], cwd=self.home, stdout=log, stderr=log) as process:
            try:
                (series,) = runs.wait_for("Prometheus to have strait_loss", loss)
                self.assertGreater(float(series["value"][1]), 0)
            finally:
                process.terminate()

    def test_runs_are_compared_by_what_differs(self):
        self.train("one", {"train.steps": 2})
        self.train("two", {"train.steps": 4, "train.clip": 2})
        text = self.ok("compare", "one", "runs/two")
        self.assertRegex(text, r"(?m)^train.steps +2 +4$")
        self.assertRegex(text, r"(?m)^train.clip +0.5 +2.0$")
        self.assertNotIn("train.batch", text)
        first, second = json.loads(self.ok("compare", "one", "two", "--json"))
        self.assertEqual(first["settings"], {"train.steps": 2, "train.clip": 0.5})
        self.assertEqual(second["results"]["step"], 4)
        self.assertEqual(second["results"]["loss"], self.run_of("two").metrics()[-1]["loss"])
        self.assertEqual(first["results"]["sent_bytes"],
                         sum(m[key] for m in self.run_of("one").metrics() for key in m if key.startswith("bytes_")))
        # As a run that ends in NaN leaves it: the last finite loss is not the loss of its last step.
        file = self.home / "runs/one/metrics.jsonl"
        *before, last = file.read_text().splitlines()
        file.write_text("\n".join([*before, json.dumps(json.loads(last) | {"loss": None})]) + "\n")
        self.assertRegex(self.ok("compare", "one", "two"), r"(?m)^loss +not finite +[\d.]+$")
        self.assertIsNone(json.loads(self.ok("compare", "one", "two", "--json"))[0]["results"]["loss"])
        # One that was moved aside has the name of the one that replaced it.
        self.ok("run", self.write_recipe("two", {"train.steps": 2}), "--replace")
        self.assertRegex(self.ok("compare", "two", "two.old-1"), r"\A +runs/two +runs/two.old-1\n")

    def test_runs_are_compared_on_a_page(self):
        self.train("one", {"train.steps": 2, "data.eval": "train.jsonl"})
        self.train("two", {"train.steps": 4})
        self.ok("compare", "one", "two", "--page", "both.html")
        text = (self.home / "both.html").read_text()
        data = json.loads(text.split('id="data">')[1].split("</script>")[0])
        figures = {one["title"]: one for section in data["sections"] for one in section["figures"]}
        self.assertEqual([(c["name"], len(c["points"])) for c in figures["Loss"]["curves"]],
                         [("runs/one", 2), ("runs/two", 4)])
        self.assertEqual(len(figures["Evaluation loss"]["curves"]), 1)
        self.assertEqual(data["runs"][1]["steps"], [1, 2, 3, 4])
        self.assertEqual([row[0] for row in figures["Settings that differ, and results"]["rows"]],
                         ["runs/one", "runs/two"])

    def test_fit_takes_model_and_line_of_a_recipe(self):
        recipe = self.write_recipe("small", {"hosts.link_megabits": 20})
        (row, *_) = rows = json.loads(self.ok("plan", "--fit", recipe, "--json"))
        self.assertEqual([(one["training"], one["gibibytes"]) for one in rows],
                         [(training, size) for training in ("full", "LoRA", "QLoRA") for size in (16, 24, 48, 80)])
        self.assertEqual({(plan["hosts"], plan.get("link_megabits")) for plan in row["plans"]},
                         {(1, None), (2, 20), (4, 20), (8, 20)})
        self.assertEqual((row["model"], row["plans"][0]["offload"]), ("small", "none"))
        table = self.ok("plan", "--fit", recipe, "--megabits", 2000).splitlines()
        self.assertEqual(len([line for line in table if line.startswith("small ")]), len(rows))
        self.assertIn("2000 Mbit/s", "\n".join(table))
        for words, said in ((["--fit", "7B", "--set", "train.batch=64"], "name a recipe"), ([], "needs an argument, recipe"),
                            (["--fit", "13B"], "1B, 3B, 7B"),
                            ([recipe, "--megabits", 9], "--fit"), (["--fit", recipe, "--emit", "commands"], "--fit"),
                            ([recipe, "--emit", "commands", "--json"], "--json")):
            code, _, err = self.strait("plan", *words)
            self.assertEqual((code, said in err), (10, True), err)

    def test_manual_page_says_what_help_says(self):
        page = self.ok("help", "--man")
        for part in (".TH STRAIT 1", ".SS strait run recipe", ".SS strait checkpoint prune", "\\-\\-resume\\-if\\-exists",
                     ".TP\n.B 20\npeer lost"):
            self.assertIn(part, page)
        self.assertNotIn("\n\n", page)
        self.assertIn(".TH STRAIT-CHECKPOINT 1", self.ok("help", "--man", "checkpoint"))
        if shutil.which("man") is None:
            return
        shown = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-"], input=page, capture_output=True, text=True,
                               env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        self.assertIn("--resume-if-exists", shown.stdout)

    def test_help_explains_and_completes(self):
        self.assertIn("--replace", self.ok("help", "run"))
        self.assertIn("--keep", self.ok("help", "checkpoint", "prune"))
        self.assertEqual(self.strait("help", "rnu")[0], 10)
        self.assertIn("default: 1.0", self.ok("explain", "clip"))
        self.assertIn("exit code 20: peer lost", self.ok("explain", "20"))
        self.assertIn("bubble: share of the step", self.ok("explain", "idle"))
        self.assertIn('"cocktail" is a value of sync.method: ', self.ok("explain", "Cocktail"))
        self.assertIn("all training rows once", self.ok("explain", "epoch"))
        code, _, err = self.strait("explain", "train.clp")
        self.assertEqual((code, "did you mean train.clip?" in err), (10, True))
        (self.home / "runs" / "chat").mkdir(parents=True)
        (self.home / "runs" / "chat" / "plan.json").write_text("{}")
        for words, found in ((["res"], ["resume"]), (["checkpoint", "p"], ["prune"]), (["run", "--repl"], ["--replace"]),
                             (["run", "--set", "train.cl"], ["train.clip="]), (["status", "ru"], ["runs/chat"]),
                             (["compare", "runs/chat", ""], ["runs/chat"]), (["explain", "train.cl"], ["train.clip"])):
            self.assertEqual(self.ok("complete", "--", *words).split(), found, words)
        script = self.ok("completion", "bash")
        script += 'COMP_WORDS=(strait run --set train.cl); COMP_CWORD=3; _strait; echo "${COMPREPLY[@]}"'
        env = {**os.environ, "PATH": f"{self.program.parent}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", script], cwd=self.home, env=env, capture_output=True, text=True)
        self.assertEqual(done.stdout.split(), ["train.clip="])


if __name__ == "__main__":
    runs.main()
