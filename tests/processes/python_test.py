"""The package `strait` of python/: it starts the real program, and what it returns is what the program wrote."""

import json
import os
import signal
import subprocess
import sys
import unittest.mock

import runs

sys.path.insert(0, str(runs.ROOT / "python"))

import strait  # noqa: E402: found by the line above

# Of a user: it is interrupted by Ctrl-C, and says that it was.
INTERRUPTED = """
import strait
try:
    strait.run("long.toml", on_step=lambda step: print(step["step"], flush=True))
except KeyboardInterrupt:
    print("interrupted")
"""


class Python(runs.RunCase):
    RECIPE = {
        "name": "from-python", "seed": 7, "model": {"path": "model", "weights": "random"},
        "data": {"train": ["train.jsonl"], "tokenizer": "bytes", "row": 32}, "pipeline": {"stages": 2, "threads": 1},
        "train": {"steps": 6, "batch": 8, "micro_batch": 2, "learning_rate": 0.003, "betas": (0.9, 0.95)},
        "checkpoint": {"every": 0},
    }

    def setUp(self):
        super().setUp()
        self.addCleanup(os.chdir, os.getcwd())
        found_here = unittest.mock.patch.dict(os.environ, STRAIT_BIN=str(runs.BIN))
        found_here.start()
        self.addCleanup(found_here.stop)
        os.chdir(self.home)

    def interrupted_child(self):
        return subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True, start_new_session=True,
                                env={**os.environ, "PYTHONPATH": str(runs.ROOT / "python")})

    def test_plan_is_that_of_the_program(self):
        (self.home / "train set.jsonl").write_text((self.home / "train.jsonl").read_text())
        name = 'train "set" \U0001f600\\.jsonl'
        os.rename(self.home / "train set.jsonl", self.home / name)
        settings = {"data.train": name, "model.lora": {"rank": 4, "targets": ["c_attn"], "alpha_pattern": {"h.0.*": 1e-05}},
                    "model": {"weights": "load"}, "pipeline": {"threads": None}}
        self.write_model("full", weights=True)
        plan = strait.plan({**self.RECIPE, "model": {"path": "full"}}, **settings)
        recipe = plan["recipe"]
        self.assertEqual(recipe["data"]["train"], name)
        self.assertEqual(recipe["model"]["lora"]["alpha_pattern"], {"h.0.*": 1e-05})
        self.assertEqual((recipe["model"]["lora"]["rank"], recipe["model"]["lora"]["alpha"]), (4, 16))
        self.assertEqual((recipe["model"]["path"], recipe["pipeline"]["threads"]), ("full", "auto"))
        file = self.write_recipe("file")
        self.assertEqual(strait.plan(file, train={"steps": 9}),
                         json.loads(self.ok("plan", file, "--json", "--set", "train.steps=9")))
        with self.assertRaisesRegex(TypeError, "no values such as"):
            strait.plan(self.RECIPE, train={"steps": object()})

    def test_run_streams_the_lines_of_its_metrics(self):
        seen = []
        run = strait.run(self.RECIPE, seen.append, train={"steps": 4})
        self.assertEqual(str(run), "runs/from-python")
        steps = strait.metrics(run)
        self.assertEqual([step["step"] for step in steps], [1, 2, 3, 4])
        self.assertEqual([{key: step[key] for key in steps[0]} for step in seen], steps)
        self.assertEqual(strait.metrics("from-python"), self.run_of("from-python").metrics())
        try:
            import pandas
        except ImportError:
            return  # of a list, which was compared
        table = strait.metrics(run, pandas=True)
        self.assertIsInstance(table, pandas.DataFrame)
        self.assertEqual(list(table["loss"]), [step["loss"] for step in steps])

    def test_refusals_and_failures_are_one_error_with_the_exit_code(self):
        with self.assertRaisesRegex(strait.RunError, r"\A[^\n]*trian.steps.*did you mean train") as refused:
            strait.plan(self.RECIPE, trian={"steps": 4})
        self.assertEqual(refused.exception.code, 10)
        strait.run(self.RECIPE, train={"steps": 1})
        with self.assertRaisesRegex(strait.RunError, r"\Aruns/from-python already holds a run[^\n]*\Z") as refused:
            strait.run(self.RECIPE)
        self.assertEqual(refused.exception.code, 10)

        def kill_stage(step):
            if step["step"] == 2:
                os.kill(self.run_of("from-python").stages()[1], signal.SIGKILL)

        with self.assertRaisesRegex(strait.RunError, r"stage 1.*killed|killed.*stage 1") as failed:
            strait.run(self.RECIPE, kill_stage, replace=True, train={"steps": 2000})
        outcome = self.run_of("from-python").outcome()
        self.assertEqual((failed.exception.code, str(failed.exception)), (outcome["code"], outcome["cause"]))

    def test_exception_in_on_step_stops_the_run_at_a_checkpoint(self):
        class EnoughSeen(Exception):
            pass

        def stop(step):
            if step["step"] == 3:
                raise EnoughSeen

        with self.assertRaises(EnoughSeen):
            strait.run(self.RECIPE, stop, train={"steps": 100_000})
        run = self.run_of("from-python")
        outcome = run.outcome()
        self.assertEqual((outcome["code"], outcome["stopped"]), (0, True))
        self.assertEqual(run.checkpoints(), [outcome["step"]])
        self.assertGreaterEqual(outcome["step"], 3)

    def test_ctrl_c_stops_the_run_at_a_checkpoint(self):
        self.write_recipe("long", {"train.steps": 100_000})
        child = self.interrupted_child()
        with child:
            self.assertEqual(child.stdout.readline(), "1\n")
            # A terminal's Ctrl-C goes to the group of the foreground.
            os.killpg(child.pid, signal.SIGINT)
            self.assertEqual(child.stdout.read().splitlines()[-1], "interrupted")
        self.assertEqual(child.returncode, 0)
        run = self.run_of("long")
        self.assertEqual((run.outcome()["code"], run.outcome()["stopped"]), (0, True))
        self.assertEqual(run.checkpoints(), [run.outcome()["step"]])

    def test_second_ctrl_c_ends_the_run_at_once(self):
        self.write_recipe("long", {"train.steps": 100_000})
        child = self.interrupted_child()
        with child:
            self.assertEqual(child.stdout.readline(), "1\n")
            run = self.run_of("long")
            runs.stop_process(run.stages()[1])  # so that no step ends
            child.send_signal(signal.SIGINT)
            runs.wait_for("the first request", lambda: run.events("stopping"))
            child.send_signal(signal.SIGINT)
            self.assertEqual(child.stdout.read().splitlines()[-1], "interrupted")
        self.assertEqual([event["now"] for event in run.events("stopping")], [False, True])
        self.assertEqual(run.outcome()["code"], 130)

    def test_load_returns_what_was_trained(self):
        try:
            import torch
            from peft import PeftModel
            from transformers import AutoModelForCausalLM
        except ImportError as error:
            self.skipTest(f"{error}; ./strait test installs it")
        ids = torch.arange(24).reshape(1, 24)
        whole = strait.load(strait.run(self.RECIPE))
        self.ok("export", "from-python", "whole")
        self.assertTrue(torch.equal(whole(ids).logits, AutoModelForCausalLM.from_pretrained("whole")(ids).logits))
        # Adapters over that model, with a rate that moves them.
        lora = {"name": "adapter", "model": {"path": "whole", "weights": "load", "lora": {"rank": 4}}}
        merged = strait.load(strait.run({**self.RECIPE, **lora}, train={"learning_rate": 0.03}))
        self.ok("export", "adapter", "adapter")
        by_peft = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("whole"), "adapter")(ids).logits
        self.assertLess((merged(ids).logits - by_peft).abs().max(), 1e-4)
        self.assertGreater((merged(ids).logits - whole(ids).logits).abs().max(), 1e-2)

    def test_program_that_is_not_there_is_named(self):
        os.environ["STRAIT_BIN"] = str(self.home)
        with self.assertRaisesRegex(FileNotFoundError, f"in {self.home}, the value of STRAIT_BIN"):
            strait.plan(self.RECIPE)


if __name__ == "__main__":
    runs.main()
