"""The quickstart as a user has it, only shorter: what it prints, what it leaves, and every verb
that follows a run."""

import json
import math
import re
import shutil
import subprocess

import runs

STEPS = 45
SHORTEST = ["--set", "train.steps=3", "--set", "train.warmup=0"]
PROMPT = "5 March 2021 -> "
# Names that other people's scripts rely on.
METRICS = ("step loss grad_norm learning_rate tokens seconds tokens_per_second "
           "bytes_forward bytes_backward bytes_sync bytes_tied tied_wait_seconds").split()


class Quickstart(runs.RunCase):
    def setUp(self):
        super().setUp()
        # Its paths are relative to where strait is called.
        shutil.copytree(runs.ROOT / "recipes", self.home / "recipes")

    def ok(self, *words):
        """Nothing on stderr either."""
        code, out, err = self.strait(*words)
        self.assertEqual((code, err), (0, ""), out)
        self.assertNotRegex(out, r"[\x00-\x09\x0b-\x1f\x7f]", "control characters in a pipe")
        return out

    def recipe_without_evaluation(self):
        text = (self.home / "recipes" / "quickstart.toml").read_text()
        kept = [line for line in text.splitlines(True) if not line.startswith("eval = ")]
        self.assertEqual(len(kept), text.count("\n") - 1)
        return self.write_recipe("short", text="".join(kept))

    def said(self, *words):
        """Output of a verb; generated text need not be UTF-8."""
        done = subprocess.run([self.program, *words], cwd=self.home, capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done.stdout

    def test_quickstart_and_later_verbs(self):
        out = self.ok("run", "recipes/quickstart.toml", "--set", f"train.steps={STEPS}")
        self.assert_output(out)
        self.assert_memory_as_planned(out)
        self.assert_files()
        self.assert_verbs()

    def assert_output(self, out):
        for word in (r"0\.0 .*blocks 0-1", r"1\.0 .*head", r"boundary 0\.0>1\.0 +shared memory", rf"training {STEPS} steps",
                     rf"step 1/{STEPS} · loss \S+ · lr \S+ · \S+ tok/s",
                     rf"step {STEPS}/{STEPS} .*Mbit/s.*FLOP/s per stage", rf"evaluation at step {STEPS}: loss",
                     rf"checkpoint at step {STEPS}", r"completions of evaluation prompts \(\d of 6 right\)",
                     r"(right|wrong)  .* -> ", "results .*runs/quickstart",
                     r"memory +0\.0 \S+ [MG]B of \S+ [MG]B planned, 1\.0 ", "strait generate runs/quickstart --prompt"):
            self.assertRegex(out, word)

    def assert_files(self):
        run = self.run_of("quickstart")
        lines = run.metrics()
        self.assertEqual([m["step"] for m in lines], list(range(1, STEPS + 1)))
        for line in lines:
            for name in METRICS:
                self.assertTrue(math.isfinite(line[name]), f"{name} in {line}")
            self.assertGreater(line["bytes_forward"], 0)
            self.assertGreater(line["bytes_backward"], 0)
            self.assertGreater(line["bytes_tied"], 0)
        self.assertLess(lines[-1]["loss"], lines[0]["loss"] - 1, "it learnt nothing")
        names = [e["event"] for e in run.events()]
        for name in ("started", "connected", "training", "evaluated", "checkpoint", "ended"):
            self.assertIn(name, names)
        self.assertEqual(run.outcome()["code"], 0)
        self.assertEqual(run.checkpoints(), [STEPS])
        for name in ("plan.json", "status.json"):
            self.assertIsInstance(json.loads((run.path / name).read_text()), dict)
        trace = json.loads((run.path / "trace.json").read_text())
        spans = trace["traceEvents"] if isinstance(trace, dict) else trace
        self.assertGreater(len(spans), STEPS)
        for stage in range(2):
            self.assertTrue((run.path / "logs" / f"{stage}.0.log").exists())

    def assert_verbs(self):
        run = "runs/quickstart"
        greedy = ["generate", run, "--prompt", PROMPT, "--max-tokens", "12"]
        self.assertRegex(self.said(*greedy), rb"\A.+\n\Z")
        self.assertEqual(self.said(*greedy), self.said(*greedy))
        sampled = ["generate", run, "--prompt", PROMPT, "--temperature", "2", "--top-k", "40"]
        three = self.said(*sampled, "--seed", "3")
        self.assertEqual(three, self.said(*sampled, "--seed", "3"))
        self.assertNotEqual(three, self.said(*sampled, "--seed", "4"))

        evaluation = self.run_of("quickstart").events("evaluated")[-1]
        measured = json.loads(self.ok("eval", run, "--json"))
        self.assertEqual(measured["step"], STEPS)
        self.assertTrue(math.isclose(measured["loss"], evaluation["loss"], rel_tol=1e-5))

        self.assertRegex(self.ok("prepare", "recipes/data/dates.jsonl", "dates.safetensors"), "rows")
        self.assertRegex(self.ok("eval", run, "--data", "dates.safetensors"), r"loss \d")

        self.assertRegex(self.ok("export", run, "exported"), "tensors")
        self.assert_exported(self.home / "exported")

    def assert_exported(self, folder):
        config = json.loads((folder / "config.json").read_text())
        self.assertEqual(config["model_type"], "gpt2")
        tensors = runs.read_safetensors(folder / "model.safetensors")
        shapes = {name: shape for name, (_, shape, _) in tensors.items()}
        self.assertEqual(shapes, runs.gpt2_shapes(config))
        # What was exported can be trained on; the first loss is that of a model that learnt.
        words = ["--set", "model.path=exported", "--set", 'model.weights="load"']
        words += ["--set", "name=again", *SHORTEST, "--set", "pipeline.stages=1"]
        self.ok("run", self.recipe_without_evaluation(), *words)
        before, after = self.run_of("quickstart").metrics(), self.run_of("again").metrics()
        self.assertLess(after[0]["loss"], before[0]["loss"] - 1)

    def test_token_file_matches_run_from_text(self):
        self.ok("prepare", "recipes/data/dates.jsonl", "dates.safetensors", "--row", "128")
        short = [self.recipe_without_evaluation(), *SHORTEST]
        self.ok("run", *short, "--set", "name=text")
        words = ["--set", "data.train=dates.safetensors", "--set", "name=tokens"]
        self.ok("run", *short, *words)
        curve = self.run_of("text").curve()
        self.assertEqual(self.run_of("tokens").curve(), curve)
        self.assertEqual(len(curve), 3)

    def test_json_output_matches_run_files(self):
        words = ["--json", *SHORTEST]
        events = [json.loads(x) for x in self.ok("run", "recipes/quickstart.toml", *words).splitlines()]
        names = [e["event"] for e in events]
        self.assertEqual(names[0], "plan")
        self.assertEqual(len(events[0]["plan"]["processes"]), 2)
        for name in ("connected", "training", "step", "checkpoint", "ended"):
            self.assertIn(name, names)
        steps = [e for e in events if e["event"] == "step"]
        written = self.run_of("quickstart").metrics()
        self.assertEqual([{k: s[k] for k in METRICS} for s in steps], [{k: m[k] for k in METRICS} for m in written])

    def test_init_writes_working_recipe(self):
        self.assertIn("mine.toml", self.ok("init", "mine.toml"))
        self.assertRegex(self.ok("init", "--help"), r"\[name\] \[file\]")
        plan = json.loads(self.ok("plan", "mine.toml", "--json"))
        self.assertEqual(plan["steps"], 300)
        self.assertRegex(self.ended(10, "init", "mine.toml")[1], "mine.toml.*exists")
        _, err = self.ended(10, "init", "nowhere/mine.toml")
        self.assertRegex(err, r"nowhere/mine\.toml: No such file or directory")
        _, err = self.ended(10, "init", "--keys", "one", "two.toml")
        self.assertIn("init --keys takes one file to write, and not one and two.toml", err)
        self.assertFalse((self.home / "two.toml").exists() or (self.home / "one").exists())
        self.assertIn("then: strait run 'my #1.toml'\n", self.ok("init", "my #1.toml"))
        self.assertIn("strait run 'my #1.toml'\n", (self.home / "my #1.toml").read_text())

    def test_version_and_help_succeed(self):
        self.assertRegex(self.ok("--version"), r"\Astrait \d+\.\d+\.\d+-[0-9a-f]{12}\n\Z")
        verbs = self.ok("--help")
        for verb in "init prepare plan run resume status stop eval generate export".split():
            self.assertTrue(re.search(rf"^ +{verb} ", verbs, re.M), verb)
            self.assertIn(verb, self.ok(verb, "--help"))


if __name__ == "__main__":
    runs.main()
