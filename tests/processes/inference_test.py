"""A trained model is asked in one process and over the stages of its run: the same answers, from any cut."""

import json
import os
import re
import shutil
import signal
import subprocess

import runs

PROMPTS = ["3 May 1999 -> ", "12", "What is it?", "a", "b b b b b b b b"]


class Inference(runs.RunCase):
    TRAINED = {"train.steps": 3, "data.eval": "eval.jsonl", "checkpoint.every": 3}
    CUTS = {
        "three stages": {"pipeline.stages": 3},
        "two chunks a stage": {"pipeline.stages": 2, "pipeline.schedule": "interleaved", "pipeline.chunks": 2},
        "two replicas, recomputed, compressed": {
            "pipeline.stages": 2, "pipeline.replicas": 2, "train.batch": 8, "model.recompute": "layer",
            "codec.forward": "delta", "codec.backward": "fixed"},
        "one stage": {"pipeline.stages": 1},
    }

    def setUp(self):
        super().setUp()
        self.write_data("eval.jsonl", records=23)
        lines = [{"prompt": text} for text in PROMPTS]
        lines.append({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"},
                                   {"role": "user", "content": "no"}]})
        (self.home / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n")

    def test_completions_shown_behind_a_run_are_of_the_first_file_with_prompts(self):
        (self.home / "book.txt").write_text("A text has no prompts. " * 100)
        launched = self.start("asked", {**self.TRAINED, "data.eval": ["book.txt", "eval.jsonl"]})
        self.assertEqual(launched.end(), 0, launched.output())
        self.assertRegex(launched.output(), r"completions of evaluation prompts \(\d of 6 right\)")

    def test_the_checkpoint_of_a_live_run_is_chosen_when_the_prompts_are_read(self):
        launched = self.start("live", {**self.TRAINED, "train.steps": 100_000, "checkpoint.every": 1, "checkpoint.keep": 20})
        launched.at_event("checkpoint")
        os.mkfifo(self.home / "slow.jsonl")
        asked = self.launch("generate", launched.run.path, "--prompts", "slow.jsonl", "--max-tokens", 2, name="live")
        with open(self.home / "slow.jsonl", "w") as prompts:  # once it is opened for reading, too
            saved = len(launched.run.events("checkpoint"))
            asked.wait_for("25 more checkpoints", lambda: len(launched.run.events("checkpoint")) > saved + 25)
            prompts.write('{"prompt": "3 May"}\n')
        self.assertEqual(asked.end(), 0, asked.output())
        launched.signal(signal.SIGINT)
        self.assertEqual(launched.end(), 0, launched.output())

    def test_a_stop_behind_the_last_step_ends_the_completions_alone(self):
        launched = self.start("ended", {**self.TRAINED, "data.eval": ["eval.jsonl"]})
        launched.at_event("ended")
        launched.signal(signal.SIGINT)
        self.assertEqual(launched.end(), 0, launched.output())
        self.assertIn("export", launched.output())

    def test_libraries_are_initialised_once_with_bounded_waits(self):
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_", "KMP_"))}
        done = subprocess.run([self.program, "generate", "nowhere", "--prompt", "a"], cwd=self.home, capture_output=True,
                              text=True, env={**environment, "OMP_DISPLAY_ENV": "verbose"})
        self.assertEqual(re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr), ["3000"])

    def both(self, verb, run, *words):
        """The output in one process, which has to be that over the stages, too."""
        here = self.ok(verb, run, *words, "--on", "here")
        self.assertEqual(self.ok(verb, run, *words, "--on", "hosts"), here)
        return here

    def test_stages_answer_as_one_process(self):
        for number, (name, keys) in enumerate(self.CUTS.items()):
            with self.subTest(name):
                run = self.train(f"cut{number}", {**self.SETTINGS, **self.TRAINED, **keys})
                before = {path: path.read_bytes() for path in run.path.rglob("*.json*") if path.is_file()}
                path = f"runs/cut{number}"
                scored = json.loads(self.both("eval", path, "--json"))
                self.assertEqual(scored["step"], 3)
                # Of several replicas the sum has another order.
                self.assertAlmostEqual(scored["loss"], run.events("evaluated")[-1]["loss"], delta=1e-6)
                self.both("generate", path, "--prompt", "3 May", "--max-tokens", 9)
                sampled = ("--temperature", 1.5, "--top-k", 50, "--top-p", 0.95, "--min-p", 0.001,
                           "--repetition-penalty", 1.2, "--max-tokens", 12, "--seed", 5)
                lines = [json.loads(line) for line in self.both(
                    "generate", path, "--prompts", "prompts.jsonl", *sampled).splitlines()]
                self.assertEqual([line["number"] for line in lines], [1, 2, 3, 4, 5, 6])
                self.assertEqual(len({line["completion"] for line in lines}), 6)
                after = {path: path.read_bytes() for path in before}
                self.assertEqual([str(path) for path in before if before[path] != after[path]], [])
        self.assert_no_processes_left()

    def test_stops_and_limits(self):
        self.train("stops", {**self.SETTINGS, **self.TRAINED, "pipeline.stages": 2})
        words = ("generate", "runs/stops", "--prompts", "prompts.jsonl", "--temperature", 3, "--max-tokens", 40)
        lines = [json.loads(line) for line in self.ok(*words).splitlines()]
        self.assertLessEqual({line["end"] for line in lines}, {"length", "end of text"})
        self.assertIn(40, {line["tokens"] for line in lines})
        whole = lines[0]["completion"]
        stop = next(letter for letter in whole[5:] if "!" <= letter <= "~")
        for line, before in zip(self.both(*words[:2], *words[2:], "--stop", "never there", "--stop", stop).splitlines(), lines):
            cut, text = json.loads(line), before["completion"]
            self.assertEqual(cut["completion"], text.partition(stop)[0])
            self.assertEqual(cut["end"], "stop" if stop in text else before["end"])

    def test_bad_prompts_are_refused(self):
        self.train("bad", {**self.SETTINGS, **self.TRAINED})
        for text, *patterns in (
            ('{"prompt": "a"}\n{"text": "b"}\n', r"bad.jsonl:2: expected", "prompt"),
            ("nonsense\n", r"bad.jsonl:1: expected", "not JSON"),
            ('{"x": 1}\n', r'bad.jsonl:1: expected .* neither "prompt" nor "messages"\n'),
            ('{"prompt": "a"}\n{"messages": ["x"]}\n', r'bad.jsonl:2: '),
            ('{"prompt": 7}\n', r'bad.jsonl:1: "prompt" is a number where a string'),
            ('{"messages": 7}\n', r'bad.jsonl:1: "messages" is not a list of'),
            ('{"messages": []}\n', r'bad.jsonl:1: "messages" is not a list of'),
            ('\n{"messages": [{"role": "robot", "content": "a"}]}\n',
             r'bad.jsonl:2: it has the role "robot" \(message 1\), which byte tokens cannot render'),
            ('{"messages": [{"role": "user", "content": 5}]}\n',
             r'bad.jsonl:1: message 1: "content" is a number where a string'),
            ("[]\n", "bad.jsonl:1: expected .* is a list"),
            ("\n \n", "bad.jsonl holds no prompt"),
            ('{"prompt": "a"}\n\n{"prompt": ""}\n', "bad.jsonl:3: the prompt has 0 tokens; 1 to "),
        ):
            (self.home / "bad.jsonl").write_text(text)
            code, out, err = self.strait("generate", "runs/bad", "--prompts", "bad.jsonl", "--on", "here")
            self.assertEqual((code, out), (10, ""), err)
            for pattern in patterns:
                self.assertRegex(err, pattern)
        # The last of them, before anything is started.
        self.assertEqual(self.strait("generate", "runs/bad", "--prompts", "bad.jsonl", "--on", "hosts"), (code, out, err))
        code, _, err = self.strait("generate", "runs/bad", "--prompts", "none.jsonl")
        self.assertEqual(code, 10, err)
        self.assertIn("none.jsonl cannot be read", err)
        for words, says in (
            (("--prompts", "runs"), "runs is a directory"),
            (("--prompt", "a", "--stop", ""), "--stop is empty"),
            (("--prompt", "a", "--temperature", "nan"), "nan is no number from 0 to 100"),
            (("--prompt", "a", "--repetition-penalty", "nan"), "nan is no number from 0.01 to 100"),
            (("--prompt", "a", "--on", "foo"), "--on: foo not in {auto,here,hosts}"),
            (("--prompt", "a", "--on", "1"), "--on: 1 not in {auto,here,hosts}"),
        ):
            code, out, err = self.strait("generate", "runs/bad", *words)
            self.assertEqual((code, out), (10, ""), err)
            self.assertIn(says, err)

    def test_an_ended_run_without_checkpoint_is_not_waited_for(self):
        run = self.train("none", {**self.SETTINGS, **self.TRAINED})
        for checkpoint in (run.path / "checkpoints").iterdir():
            shutil.rmtree(checkpoint)
        code, out, err = self.strait("generate", "runs/none", "--prompt", "a")
        self.assertEqual((code, out), (10, ""), err)
        self.assertIn("no complete checkpoint, and the run has ended; begin again with: strait run runs/none/recipe.toml --replace", err)

    def test_killed_stage_is_named(self):
        self.train("killed", {**self.SETTINGS, **self.TRAINED, "pipeline.stages": 2})
        (self.home / "many.jsonl").write_text('{"prompt": "abc"}\n' * 5000)
        asked = self.launch("generate", "runs/killed", "--prompts", "many.jsonl", "--on", "hosts", name="killed")
        asked.wait_for("answers", lambda: asked.output().count("completion") > 5)
        victims = runs.descendants(runs.processes(), asked.process.pid)
        self.assertEqual(len(victims), 2)
        os.kill(max(victims), signal.SIGKILL)
        self.assertEqual(asked.end(), 20, asked.output()[-2000:])
        self.assertRegex(asked.output(), r"stage [01]\.0 .*signal 9")
        self.assert_no_processes_left()

    def test_batches_change_no_text(self):
        self.train("batched", {**self.SETTINGS, **self.TRAINED, "pipeline.stages": 3})
        (self.home / "varied.jsonl").write_text("".join(
            json.dumps({"prompt": "abc " * (1 + number * 7 % 10)}) + "\n" for number in range(20)))
        words = ("generate", "runs/batched", "--prompts", "varied.jsonl", "--max-tokens", 9, "--temperature", 1.3)
        alone = self.ok(*words, "--batch", 1, "--on", "here")
        for place in ("here", "hosts"):
            self.assertEqual(self.ok(*words, "--batch", 13, "--on", place), alone)

    def test_a_stop_ends_all(self):
        self.train("stopped", {**self.SETTINGS, **self.TRAINED, "pipeline.stages": 2})
        (self.home / "many.jsonl").write_text('{"prompt": "abc"}\n' * 5000)
        asked = self.launch("generate", "runs/stopped", "--prompts", "many.jsonl", "--on", "hosts", name="stopped")
        asked.wait_for("answers", lambda: asked.output().count("completion") > 5)
        asked.signal(signal.SIGINT)
        self.assertEqual(asked.end(), 130, asked.output()[-2000:])
        self.assert_no_processes_left()


if __name__ == "__main__":
    runs.main()
