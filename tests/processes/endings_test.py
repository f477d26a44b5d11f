"""How a run ends by itself, what it keeps, and what it runs then: train.stop_when, checkpoint.keep_best and [on]."""

import json
import os
import signal

import runs


class Endings(runs.RunCase):
    # Without a learning rate all evaluations are equal: the first is the best, and none is better.
    SETTINGS = {
        **runs.RunCase.SETTINGS, "data.hold_out": 0.1, "train.steps": 40, "train.learning_rate": 0,
        "train.eval_every": 2, "train.stop_when.no_better": 4, "checkpoint.every": 2, "checkpoint.keep": 2,
        "checkpoint.keep_best": True,
    }

    def evaluated(self, run):
        return [(one["step"], one["loss"]) for one in run.events("evaluated")]

    def test_run_ends_early_and_keeps_the_best_checkpoint(self):
        out = self.ok("run", self.write_recipe("run"))
        run = self.run_of("run")
        why = "the evaluation loss was not better than the "
        self.assertIn(f"ended early after step 10 of 40: {why}", out)
        self.assertIn("strait resume runs/run --set train.stop_when.no_better=0", out)
        self.assertEqual([m["step"] for m in run.metrics()], list(range(1, 11)))
        self.assertEqual([step for step, _ in self.evaluated(run)], [2, 4, 6, 8, 10])
        self.assertEqual(run.checkpoints(), [2, 8, 10])
        ended = run.outcome()
        self.assertEqual((ended["code"], ended["stopped"], ended["cause"]), (0, False, ""))
        self.assertTrue(ended["early"].startswith(why), ended)
        self.assertEqual([e["text"] for e in run.events("stage_event") if e["name"] == "stopped_early"], [ended["early"]])
        self.assertIn(f"ended early after step 10 of 40: {why}", self.ok("status", "run"))
        self.ends_at_the_same_step_from_an_older_checkpoint(run)
        self.finds_the_best(run)
        self.is_complete_until_the_rule_changes(run)

    def ends_at_the_same_step_from_an_older_checkpoint(self, run):
        whole, evaluations = run.learnt(10), self.evaluated(run)
        out = self.resumed(run, "--from", "8")
        self.assertIn("ended early after step 10 of 40", out)
        self.assert_same_bits(whole, run.learnt(10))
        self.assertEqual(self.evaluated(run), [*evaluations, evaluations[-1]])
        # All that was seen after step 2 is forgotten with it.
        out = self.resumed(run, "--from", "2", "--set", "train.stop_when.no_better=2")
        self.assertIn("ended early after step 6 of 40", out)
        self.assertEqual(run.checkpoints(), [2, 4, 6])

    def finds_the_best(self, run):
        listed = json.loads(self.ok("checkpoint", "list", "run", "--json"))["checkpoints"]
        self.assertEqual({one["step"]: one["best"] for one in listed}, {6: False, 4: False, 2: True})
        loss = dict(self.evaluated(run))[2]
        self.assertEqual([one["evaluation"] for one in listed], [loss] * 3)
        self.assertRegex(self.ok("checkpoint", "list", "run"), r"step 2 .*, evaluation loss [\d.]+, the best\n")
        for which, step in (("best", 2), ("4", 4), ("newest", 6)):
            found = json.loads(self.ok("eval", "run", "--checkpoint", which, "--json"))
            self.assertEqual(found["step"], step)
            self.assertAlmostEqual(found["loss"], loss, places=5)
        self.assertIn("tensors of step 2 are in out", self.ok("export", "run", "out", "--checkpoint", "best"))
        self.ok("generate", "run", "--prompt", "link", "--max-tokens", "2", "--checkpoint", "best")
        _, err = self.ended(10, "eval", "run", "--checkpoint", "5")
        self.assertIn("--checkpoint is 5, but must be newest, best, or the step of a checkpoint", err)
        self.assertIn("has here: 6, 4, 2", err)
        self.ok("checkpoint", "prune", "run", "--keep", "1")
        self.assertEqual(run.checkpoints(), [2, 6])

    def is_complete_until_the_rule_changes(self, run):
        out = self.resumed(run)
        self.assertIn("runs/run is complete: it ended early: the evaluation loss", out)
        self.assertEqual(len(run.metrics()), 6)
        out = self.resumed(run, "--set", "train.stop_when.no_better=0", "--set", "train.steps=8")
        self.assertIn("train.stop_when.no_better unset instead of 2", out)
        self.assertNotIn("ended early", out)
        self.assertEqual(run.checkpoints(), [2, 6, 8])

    def test_commands_run_beside_training_and_change_nothing_of_it(self):
        # That of step 2 goes on until the run has ended; of those that come meanwhile the newest is next.
        settings = {
            "train.steps": 8,
            "train.stop_when.no_better": None,
            "on.checkpoint": "echo begin $STRAIT_STEP >> saved; while [ ! -e go ]; do sleep 0.05; done; "
                             "echo end >> saved; cat; echo shown; exit 3",
            "on.failure": "touch failed",
            "on.end": "env | grep ^STRAIT_ | sort > ended",
        }
        launched = self.start("run", settings)
        launched.at_event("ended")
        self.assertFalse((self.home / "ended").exists())
        (self.home / "go").touch()
        self.assertEqual(launched.end(), 0, launched.output())
        self.assertEqual((self.home / "saved").read_text().split("\n"), ["begin 2", "end", "begin 8", "end", ""])
        said = [e["text"] for e in launched.run.events("stage_event") if e["name"] == "hook_failed"]
        self.assertEqual([text.split(";")[0] for text in said],
                         [f"on.checkpoint of step {step} failed: it ended with code 3" for step in (2, 8)])
        self.assertIn(f"the launcher: {said[0]}\n", launched.output())
        self.assertEqual((launched.run.path / "logs/hooks.log").read_text(), "shown\nshown\n")
        self.assertIn("hooks | shown", self.ok("logs", "run"))
        self.assertFalse((self.home / "failed").exists())
        variables = dict(line.split("=", 1) for line in (self.home / "ended").read_text().splitlines())
        self.assertEqual({name: variables[f"STRAIT_{name}"] for name in ("RUN", "EVENT", "STEP", "EXIT_CODE", "CAUSE")},
                         {"RUN": "run", "EVENT": "end", "STEP": "8", "EXIT_CODE": "0", "CAUSE": ""})
        self.assertTrue(os.path.samefile(variables["STRAIT_RUN_DIRECTORY"], launched.run.path))
        # Nothing of them is in what others see, and the directory is closed to other users.
        self.assertNotIn("begin $STRAIT_STEP", (launched.run.path / "report.html").read_text())
        self.assertEqual(launched.run.path.stat().st_mode & 0o077, 0)

    def test_failure_is_told_with_its_cause(self):
        settings = {
            "train.steps": 100_000, "train.stop_when.no_better": None,
            "on.failure": 'echo "$STRAIT_EXIT_CODE $STRAIT_CAUSE" > failed',
            "on.end": 'cat failed > ended; echo "$STRAIT_EXIT_CODE" >> ended; sleep 1000',
        }
        launched = self.start("run", settings)
        launched.at_step(3)
        os.kill(launched.run.stages()[1], signal.SIGKILL)
        # on.end goes on for long, and Ctrl-C ends it.
        launched.wait_for("what on.end writes", lambda: (self.home / "ended").exists() and
                          (self.home / "ended").read_text().count("\n") == 2)
        launched.wait_for("a note", lambda: "waiting for on.end; Ctrl-C ends it" in launched.output())
        launched.end_by(signal.SIGINT, 20)
        cause = launched.run.outcome()["cause"]
        self.assertEqual((self.home / "ended").read_text(), f"20 {cause}\n20\n")
        self.assertIn("on.end of step", launched.output())
        self.assertIn("it was ended on request", launched.output())

    def test_commands_do_not_outlive_the_launcher(self):
        settings = {"train.steps": 100_000, "train.stop_when.no_better": None,
                    "on.checkpoint": "touch saving; sleep 1000"}
        launched = self.start("killed", settings)
        launched.wait_for("on.checkpoint", (self.home / "saving").exists)
        launched.signal(signal.SIGKILL)
        launched.end()
        self.wait_for_no_processes()


if __name__ == "__main__":
    runs.main()
