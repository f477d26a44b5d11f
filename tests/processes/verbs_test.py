"""Verbs that look at runs from outside: compare, track, and help, explain and completion."""

import json
import os
import subprocess
import sys
import tempfile

import runs

PYTHON = os.environ.get("STRAIT_PYTHON", sys.executable)


def has_package(name):
    found = subprocess.run([PYTHON, "-c", f"import {name}"], capture_output=True).returncode == 0
    if not found:
        print(f"skipped: {PYTHON} has no {name}, so nothing is sent to it")
    return found


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
                self.assertEqual(done.returncode, 1)
                self.assertIn(f"{to} is not installed for ", done.stderr)
                continue
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"runs/tracked: {steps} steps sent to {to}, up to step {steps}; run ", done.stdout)
            again = subprocess.run(words, cwd=self.home, env=env, capture_output=True, text=True)
            self.assertIn(f"runs/tracked: 0 steps sent to {to}, up to step {steps}; run ", again.stdout + again.stderr)

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

    def test_help_explains_and_completes(self):
        self.assertIn("--replace", self.ok("help", "run"))
        self.assertIn("--keep", self.ok("help", "checkpoint", "prune"))
        self.assertEqual(self.strait("help", "rnu")[0], 10)
        self.assertIn("default: 1.0", self.ok("explain", "clip"))
        self.assertIn("exit code 20: peer lost", self.ok("explain", "20"))
        self.assertIn("bubble: share of the step", self.ok("explain", "idle"))
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
