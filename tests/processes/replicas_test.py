"""Replicas in real runs: what they agree on, that they do so again to the same bits, what a resumed
run goes on with, and what is said about all of it.
"""

import json
import os
import random
import re
import signal
import time

import runs

ALWAYS = ("allreduce", "cocktail", "onebit_adam", "streaming_diloco")  # campaigns resume all of them here, tests/stages always
WITH_ADAPTERS = ("cocktail", "diloco")
STEPS = 24
MIDDLE = 10  # a checkpoint that no round of any method below ends at
METHODS = {
    "allreduce": {}, "cocktail": {"sync.random": 0.3, "sync.top": 0.5},
    "diloco": {"sync.every": 4, "pipeline.rows": [6, 2]},
    "streaming_diloco": {"sync.every": 8, "sync.fragments": 2, "sync.late": 2}, "noloco": {"sync.every": 4},
    "onebit_adam": {}, "bytegrad": {}, "powersgd": {"sync.rank": 2},
}


class Replicated(runs.RunCase):
    SETTINGS = {
        **runs.RunCase.SETTINGS, "pipeline.replicas": 2, "train.steps": STEPS, "train.batch": 8, "train.micro_batch": 2,
        "checkpoint.every": MIDDLE, "checkpoint.keep": 3,
    }

    def learnt(self, run, steps=STEPS):
        """Values that are compared bit by bit: losses, norms, weights, moments, state of sync methods."""
        curve = run.curve()
        self.assertEqual(sorted(curve), list(range(1, steps + 1)))
        return curve, run.state(steps)

    def restarted(self, run):
        return [e["text"] for e in run.events("stage_event") if e["name"] == "sync_restarted"]

    def assert_learns(self, run):
        losses = [m["loss"] for m in run.metrics()]
        self.assertLess(losses[-1], losses[0] - 0.5, losses)


class Exactness(Replicated):
    # Without shuffling, replicas together visit the rows that one alone does.
    PLAIN = {"data.shuffle": False, "model.path": "dry", "checkpoint.every": 0}

    def setUp(self):
        super().setUp()
        self.write_model("dry", embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)
        self.write_data("train.jsonl", 500)

    def test_exact_means_match_single_replica(self):
        alone = self.train("alone", {**self.PLAIN, "pipeline.replicas": 1})
        for replicas, stages, rows in [(2, 2, "equal"), (4, 1, "equal"), (2, 1, [6, 2])]:
            with self.subTest(replicas=replicas, stages=stages, rows=rows):
                split = {"pipeline.replicas": replicas, "pipeline.stages": stages, "pipeline.rows": rows}
                run = self.train(f"of-{replicas}-{stages}", {**self.PLAIN, **split})
                self.assertEqual(run.plan()["replica_rows"], [] if rows == "equal" else rows)
                self.assert_close(alone.curve(), run.curve())

    def test_sums_in_shared_memory_have_the_bits_of_sums_over_links(self):
        short = {"train.steps": 6, "checkpoint.every": 0}
        links = self.train("links", short)
        group = self.train("group", {**short, "sync.group": "always"})
        self.assert_same_bits(self.learnt(links, 6), self.learnt(group, 6))
        self.assertEqual(
            sorted(e["text"] for e in group.events("stage_event") if e["name"] == "gradient_sums"),
            [f"stage {s}.{r}: gradients are summed by shared memory" for s in (0, 1) for r in (0, 1)])
        # What is left of the traffic: agreement on each step, and checksums of the model.
        sent = [sum(one["sent_bytes"] for m in run.metrics() for one in m["sync"]) for run in (links, group)]
        self.assertLess(sent[1], sent[0] / 4, sent)

    def test_shared_state_has_the_bits_of_whole_state(self):
        short = {"train.steps": 8, "checkpoint.every": 4, "sync.group": "always"}
        whole = self.train("whole", short)
        shared = self.train("shared", {**short, "sync.share_state": True})
        learnt = self.learnt(whole, 8)
        self.assert_same_bits(learnt, self.learnt(shared, 8))
        for stage in (0, 1):
            parts = [self.moments_of(shared, 8, stage, replica) for replica in (0, 1)]
            self.assertTrue(parts[0] and parts[1])
            self.assertEqual(parts[0] & parts[1], set())
            self.assertEqual(parts[0] | parts[1], self.moments_of(whole, 8, stage, 0))
        for run, share in ((shared, False), (whole, True)):
            self.rewind_run(run, 4)
            self.resumed(run, "--set", f"sync.share_state={json.dumps(share)}")
            self.assertEqual(self.restarted(run), [])
            self.assert_same_bits(learnt, self.learnt(run, 8))

    def moments_of(self, run, step, stage, replica):
        """The names of the moments that this process has saved."""
        shard = run.path / "checkpoints" / f"step-{step}" / f"stage-{stage}.replica-{replica}.safetensors"
        return {name for name in runs.read_safetensors(shard) if name.endswith("_moment")}

    def test_replica_that_is_lost_with_its_part_of_the_state_restarts_to_same_bits(self):
        settings = {"train.steps": 100, "checkpoint.every": 20, "sync.group": "always", "sync.share_state": True}
        quiet = self.train("quiet", settings)
        launched = self.start("loud", {**settings, "hosts.restart": 2})
        launched.at_checkpoint(20)
        os.kill(launched.run.processes()["1.1"], signal.SIGKILL)
        self.assertEqual(launched.end(), 0, launched.output())
        self.assertEqual(len(launched.run.events("restart")), 1)
        self.assert_same_bits(quiet.learnt(100), launched.run.learnt(100))

    def assert_close(self, expected, got):
        self.assertEqual(sorted(got), list(range(1, STEPS + 1)))
        for step in expected:
            for one, other in zip(expected[step], got[step]):
                self.assertLess(abs(one - other), 1e-4 * abs(one), f"step {step}")

    def test_unequal_batches_are_deterministic(self):
        odd = {"pipeline.replicas": 3, "train.batch": 6, "train.steps": 8, "checkpoint.every": 0}
        first = self.learnt(self.train("first", odd), 8)
        self.assert_same_bits(first, self.learnt(self.train("second", odd), 8))


class Methods(Replicated):
    def test_every_method_resumes_to_same_bits(self):
        for method in METHODS if runs.CAMPAIGN else ALWAYS:
            with self.subTest(method):
                run = self.train(method, {"sync.method": method, **METHODS[method]})
                self.assert_learns(run)
                learnt = self.learnt(run)
                self.assert_sync_metrics(run, method)
                self.rewind_run(run, MIDDLE)
                self.resumed(run)
                self.assertEqual(self.restarted(run), [])
                self.assert_same_bits(learnt, self.learnt(run))

    def test_methods_sync_adapters(self):
        """Only those of the last two blocks: the first stage has nothing to sync. Campaigns try every method."""
        adapters = {"model.lora.rank": 4, "model.lora.layers": [2, 3], "train.learning_rate": 0.01}
        for method in METHODS if runs.CAMPAIGN else WITH_ADAPTERS:
            with self.subTest(method):
                settings = {"sync.method": method, **METHODS[method], **adapters}
                run = self.train(f"adapters-{method}", settings)
                losses = [m["loss"] for m in run.metrics()]
                self.assertLess(losses[-1], losses[0])
                learnt = self.learnt(run)
                self.rewind_run(run, MIDDLE)
                self.resumed(run)
                self.assert_same_bits(learnt, self.learnt(run))

    def assert_sync_metrics(self, run, method):
        lines = run.metrics()
        for line in lines:
            self.assertEqual([one["process"] for one in line["sync"]], ["0.0", "0.1", "1.0", "1.1"])
        totals = {key: sum(one[key] for line in lines for one in line["sync"])
                  for key in ("rounds", "sent_bytes", "bfloat16_bytes")}
        self.assertGreater(totals["rounds"], 0, method)
        self.assertGreater(totals["sent_bytes"], 0)
        self.assertGreaterEqual(sum(line["bytes_sync"] for line in lines), totals["sent_bytes"] * 0.9)

    def test_evaluates_and_exports_common_model(self):
        self.write_data("eval.jsonl", 20)
        more = {"data.eval": "eval.jsonl", "train.eval_every": 8}
        for method in ("cocktail", "noloco"):
            with self.subTest(method):
                run = self.train(method, {"sync.method": method, **METHODS[method], **more})
                self.assert_evaluates_as_trained(run, [8, 16, 24])
                self.ok("export", run.path, f"{method}-exported")
                exported = runs.read_safetensors(self.home / f"{method}-exported" / "model.safetensors")
                state = run.state(STEPS)
                for name, tensor in exported.items():
                    self.assertEqual(state[name], tensor, name)

    def test_evaluation_does_not_affect_training(self):
        self.write_data("eval.jsonl", 20)
        settings = {"sync.method": "cocktail", **METHODS["cocktail"]}
        without = self.train("without", settings)
        seen = self.train("seen", {**settings, "data.eval": "eval.jsonl", "train.eval_every": 5})
        self.assert_same_bits(self.learnt(without), self.learnt(seen))


class Failures(Replicated):
    SOON = 10  # seconds within which every process must have gone

    def test_run_with_killed_stage_resumes_to_same_bits(self):
        seed = int(os.environ.get("STRAIT_TEST_SEED", time.time_ns() % 1_000_000))
        print(f"seed {seed}")
        chance = random.Random(seed)
        steps = 60
        settings = {"sync.method": "cocktail", **METHODS["cocktail"], "train.steps": steps, "checkpoint.every": 5}
        reference = self.learnt(self.train("reference", settings), steps)
        for round_ in range(2 if runs.CAMPAIGN else 1):
            with self.subTest(seed=seed, round=round_):
                name = f"killed-{round_}"
                launched = self.start(name, settings)
                launched.at_event("checkpoint")
                launched.at_step(chance.randrange(6, 20))
                victim = chance.choice(["0.0", "0.1", "1.0", "1.1"])
                os.kill(launched.run.processes()[victim], signal.SIGKILL)
                self.assertEqual(launched.end(self.SOON), 20, launched.output())
                self.wait_for_no_processes(1)
                outcome = launched.run.outcome()
                self.assertEqual(outcome["culprit"], victim, outcome)
                self.assertIn("signal 9", outcome["cause"])
                self.resumed(launched.run)
                self.assert_same_bits(reference, self.learnt(launched.run, steps))

    def test_reports_hanging_replica(self):
        launched = self.start("hangs", {"train.steps": 100_000, "checkpoint.every": 0})
        launched.at_step(3)
        runs.stop_process(launched.run.processes()["1.1"])
        self.assertEqual(launched.end(self.SOON), 21, launched.output())
        self.wait_for_no_processes(1)
        self.assertEqual(launched.run.outcome()["culprit"], "1.1")


class Changes(Replicated):
    """Runs resumed with another number of replicas, another method or another cut."""

    def test_resumes_with_other_number_of_replicas(self):
        run = self.train("run", {"sync.method": "cocktail", **METHODS["cocktail"],
                                 "train.batch": 12, "train.steps": 24})
        for replicas in (3, 1):
            with self.subTest(replicas=replicas):
                self.rewind_run(run, MIDDLE)
                out = self.resumed(run, "--set", f"pipeline.replicas={replicas}")
                self.assertRegex(out, "every replica starts from the agreed model of step 10")
                self.assertEqual(len(run.plan()["processes"]), 2 * replicas)
                self.assertEqual(len(run.metrics()), STEPS)
                losses = [m["loss"] for m in run.metrics()]
                self.assertLess(losses[-1], losses[MIDDLE - 1])

    def test_other_method_or_cut_resumes_from_common_model(self):
        run = self.train("run", {"sync.method": "cocktail", **METHODS["cocktail"]})
        changes = [(["sync.method=powersgd", "sync.rank=4"], "method powersgd instead of cocktail"),
                   (["sync.method=auto"], "every replica starts"), (["sync.method=cocktail", "sync.top=1"], '"top":1'),
                   (["pipeline.stages=3"], "layers .* instead of ")]
        for overrides, words in changes:
            with self.subTest(overrides):
                self.rewind_run(run, MIDDLE)
                out = self.resumed(run, *(word for one in overrides for word in ("--set", one)))
                self.assertRegex(out, words)
                self.assertEqual(len(self.restarted(run)), 1)
                (run.path / "events.jsonl").unlink()
                losses = [m["loss"] for m in run.metrics()]
                self.assertLess(losses[-1], losses[MIDDLE - 1])

    def test_auto_reports_chosen_method(self):
        recipe = self.write_recipe("auto", {"sync.method": "auto", "hosts.link_megabits": 1})
        out = self.ok("plan", recipe, "--json")
        plan = json.loads(out)
        self.assertIn(plan["sync_method"], METHODS)
        offers = {offer["method"]: offer for offer in plan["sync_offers"]}
        self.assertEqual(sorted(offers), sorted(METHODS))
        self.assertLess(offers["cocktail"]["step_bytes"], offers["allreduce"]["step_bytes"] / 50)
        self.assertGreater(offers["allreduce"]["slowdown"], 2)
        code, out, err = self.strait("plan", recipe)
        strength = plan["sync_strength"]
        chosen = plan["sync_method"]
        if chosen == "cocktail":
            chosen += " {random:g}/{top:g}/{bits}".format(**strength)
        self.assertIn(f"sync {chosen} (auto chose it)", out)
        self.assertRegex(out, rf"\n  \* {chosen} ")
        self.assertGreater(len(re.findall(r"\n  [ *] cocktail [.\d]+/[.\d]+/\d ", out)), 3)
        for method in METHODS:
            self.assertRegex(out, rf"{method} .*[kM]?B .*x")
        out = self.ok("run", recipe)
        self.assertRegex(out, r"\nsent .*replicas \S+ \wB \(\d+\.\dx fewer than a bfloat16 all-reduce\)")
        table = r"0\.1 +\d+ .*\d\.\dx"
        code, out, err = self.strait("status", "runs/auto")
        self.assertRegex(out, table)
        page = (self.run_of("auto").path / "report.html").read_text()
        self.assertRegex(page, r'"0\.1","\d+",.*"\d+\.\dx"')

    def test_resume_keeps_method_chosen_by_auto(self):
        run = self.train("run", {"sync.method": "auto", "hosts.link_megabits": 1})
        chosen = [run.plan()[key] for key in ("sync_method", "sync_strength")]
        self.assertNotEqual(chosen[0], "allreduce")
        losses = [m["loss"] for m in run.metrics()]
        self.rewind_run(run, MIDDLE)
        self.resumed(run, "--set", "hosts.link_megabits=100000")
        self.assertEqual([run.plan()[key] for key in ("sync_method", "sync_strength")], chosen)
        self.assertEqual(self.restarted(run), [])
        self.assertEqual([m["loss"] for m in run.metrics()], losses)
        self.rewind_run(run, MIDDLE)
        self.resumed(run, "--set", "hosts.link_megabits=100000", "--set", "sync.method=auto")
        self.assertEqual(run.plan()["sync_method"], "allreduce")


class BadInput(Replicated):
    def test_refuses_inconsistent_settings(self):
        cases = [({"sync.method": "cocktail", "sync.rank": 3}, 'sync.rank .*"cocktail" does not read it'),
                 ({"sync.method": "coctail"}, "did you mean \"cocktail\""),
                 ({"sync.method": "cocktail", "pipeline.replicas": 1}, "nothing to synchronise"),
                 ({"sync.random": 2}, "sync.random is 2.*from 1e-06 to 1"),
                 ({"pipeline.replicas": 3}, "train.batch is 8.*pipeline.replicas 3"),
                 ({"sync.method": "streaming_diloco", "sync.every": 4, "sync.fragments": 4, "sync.late": 3}, "late")]
        for settings, words in cases:
            with self.subTest(words):
                _, err = self.ended(10, "run", self.write_recipe("bad", settings))
                self.assertRegex(err, words)
                self.assertEqual(len(err.strip().splitlines()), 1, err)
                self.assertFalse((self.home / "runs" / "bad").exists())


if __name__ == "__main__":
    runs.main()
