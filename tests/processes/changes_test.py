"""What a user changes in a run that has ended: a longer one, another learning rate, batch, codec; and the advice that is
printed when a run stops, fails or diverges is followed to the letter."""

import json
import os
import re
import shutil
import signal
import struct
import subprocess

import runs


class Changes(runs.RunCase):
    SETTINGS = {**runs.RunCase.SETTINGS, "train.steps": 4, "checkpoint.every": 2, "train.warmup": 0}

    def refused(self, *words):
        _, err = self.ended(10, *words)
        return err

    def follow(self, output, label):
        """Runs the command that this line of the output advises, as it is printed."""
        [line] = re.findall(rf"^{label} +(\S*strait .*?)(?:   \(.*)?$", output, re.M)
        done = subprocess.run(line,
                              shell=True,
                              cwd=self.home,
                              env={**os.environ, "PATH": f"{runs.BIN}{os.pathsep}{os.environ['PATH']}"},
                              stdin=subprocess.DEVNULL,
                              capture_output=True,
                              text=True,
                              timeout=runs.scaled_timeout(runs.TIMEOUT))
        return line, done.returncode, done.stdout, done.stderr

    def test_finished_run_goes_on_with_the_bits_of_a_longer_one(self):
        whole = self.train("whole", {"train.steps": 8, "train.decay": "constant"})
        run = self.train("run", {"train.decay": "constant"})
        out = self.resumed(run)
        self.assertIn("to train on: strait resume runs/run --set train.steps=8", out)
        before = run.plan()
        out = self.resumed(run, "--set", "train.learning_rate=0.001")
        self.assertIn("is complete: all 4 steps are done, so nothing was changed", out)
        self.assertNotIn("changed:", out)
        self.assertEqual(run.plan(), before)
        out = self.resumed(run, "--set", "train.steps=8")
        self.assertRegex(out, r"changed: train\.steps 8 instead of 4; this gives up the bits of all later steps")
        self.assert_same_bits(whole.learnt(8), run.learnt(8))
        # Of epochs, too; and the schedule of the learning rate is that of the new length.
        out = self.resumed(run, "--set", "train.epochs=4", "--set", "train.decay=linear")
        self.assertNotIn("only rises", out)
        steps = run.plan()["steps"]
        self.assertGreater(steps, 8)
        self.assertRegex(out, rf'learning rate of step 9 is \S+ \(step 8 had 0\.003\): "linear" decay over all {steps} steps')
        self.assertAlmostEqual(run.metrics()[8]["learning_rate"], 0.003 * (1 - 8 / steps))
        self.assertLess(run.metrics()[-1]["learning_rate"], 0.003 / 4)
        out = self.resumed(run, "--set", "train.epochs=5", "--set", "train.warmup=1000")
        self.assertRegex(out, r"train\.warmup is 1000 steps, and the run has \d+: the learning rate only rises")

    def test_run_needs_the_adapter_that_it_began_with_no_longer(self):
        lora = {"model.lora.targets": ["c_attn"]}
        self.train("first", lora)
        self.ok("export", "runs/first", "adapter")
        run = self.train("run", {"model.adapter": "adapter"})
        shutil.rmtree(self.home / "adapter")
        self.resumed(run, "--set", "train.steps=8", "--set", "pipeline.stages=1")
        self.assertEqual(len(run.metrics()), 8)

    def test_changed_settings_stay_and_older_checkpoints_still_fit(self):
        run = self.train("run")
        words = [word for one in ("train.steps=8", "train.learning_rate=0.001", "train.batch=4", "train.micro_batch=1",
                                  "codec.forward=fixed", "pipeline.schedule=gpipe")
                 for word in ("--set", one)]
        out = self.resumed(run, *words)
        for say in (r"train\.learning_rate 0\.001 instead of 0\.003", "gradients are summed in another order",
                    "other values cross the boundaries", r"pipeline\.schedule .*; this gives up no bits",
                    "step 5 takes the rows that it has in a run of 4 rows a step"):
            self.assertRegex(out, say)
        self.assertEqual(run.checkpoints(), [6, 8])
        recipe = run.plan()["recipe"]
        self.assertEqual((recipe["train"]["batch"], recipe["codec"]["forward"]), (4, "fixed"))
        before = run.curve()
        self.resumed(run, "--from", "6")
        self.assertEqual(run.curve(), before, "the changed run resumes to its own bits")

    def test_what_the_plan_chose_stays_when_a_run_goes_on(self):
        """The rows of a micro-batch and the layers of stages: measured again they might be others."""
        left_to_plan = {"train.micro_batch": "auto", "pipeline.partition": "profile", "train.decay": "constant"}
        run = self.train("run", left_to_plan)
        plan = run.plan()
        chunks = [one["chunks"] for one in plan["processes"]]
        head = chunks[1][-1][1]
        blocks = [[max(first, 1) - 1, min(last, head - 1) - 1] for [[first, last]] in chunks]
        rows = 8 // plan["micro_batches"]
        named = self.train("named", {"train.micro_batch": rows, "pipeline.partition": blocks, "train.steps": 8,
                                     "train.decay": "constant"})
        out = self.resumed(run, "--set", "train.steps=8")
        self.assertRegex(out, "changed: train.steps 8 instead of 4")
        self.assertEqual([one["chunks"] for one in run.plan()["processes"]], chunks)
        self.assertEqual(run.plan()["micro_batches"], plan["micro_batches"])
        self.assert_same_bits(named.learnt(8), run.learnt(8))
        self.ok("eval", "runs/run", "--data", "train.jsonl", "--json")
        # A change of something else does not have them chosen again, and more replicas divide the batch anew.
        self.resumed(run, "--set", "train.steps=9", "--set", "pipeline.replicas=2", "--set", "sync.method=allreduce")
        self.assertEqual([one["chunks"] for one in run.plan()["processes"]], 2 * chunks)
        self.assertEqual(8 // 2 // run.plan()["micro_batches"], rows)

    def test_slices_that_the_plan_chose_stay_on_other_stages(self):
        self.write_model("long", n_positions=128, n_embd=64)
        settings = {"model.path": "long", "data.row": 128, "train.batch": 2, "train.micro_batch": 1, "pipeline.stages": 3,
                    "pipeline.slices": "auto", "hosts.simulate": {"rate": "20Mbit/s"}, "train.decay": "constant"}
        curves = []
        for stages in (3, 1):
            run = self.train(f"of-{stages}", settings)
            slices = run.plan()["slices"]
            self.assertGreater(slices, 1)
            self.resumed(run, "--set", "train.steps=6", "--set", f"pipeline.stages={stages}")
            curves.append(run.curve())
        self.assertEqual(curves[0], curves[1])
        # Where they cannot stay, the resume says so.
        out = self.resumed(run, "--set", "train.steps=8", "--set", "model.recompute=offload")
        self.assertIn(f"micro-batches cross in 1 slice instead of {slices}", out)

    def test_what_cannot_change_is_refused_with_what_can(self):
        run = self.train("run")
        for key in ("data.row=16", "seed=8", "model.dtype=bfloat16", "data.shuffle=false"):
            err = self.refused("resume", "runs/run", "--set", key)
            self.assertRegex(err, rf"--set {key.split('=')[0]} would .*train\.steps, .*train\.learning_rate.*\[codec\].*\[sync\]")
        self.assertRegex(self.refused("resume", "runs/run", "--set", "train.steps=3"), "has made 4 steps.*more than 4")
        self.assertEqual(run.plan()["steps"], 4)
        out = self.ok("resume", "--help")
        self.assertRegex(out, r"--set may change, and gives up:(?s:.*)train\.learning_rate(?s:.*)\[hosts\]")

    def test_changed_config_of_the_model_is_refused(self):
        """A plain resume keeps the model of its plan; a changed plan would read the file, and train another model."""
        run = self.train("run", {"train.decay": "constant"})
        [config] = self.home.rglob("config.json")
        before = config.read_text()
        for key, value in (("layer_norm_epsilon", 0.1), ("n_layer", 1)):
            config.write_text(json.dumps({**json.loads(before), key: value}))
            plan = run.plan()
            _, err = self.ended(11, "resume", "runs/run", "--set", "train.steps=6")
            self.assertRegex(err, rf"{config} has changed since the run began; put it back, or start .*model\.weights")
            self.assertEqual(run.plan(), plan)
        config.write_text(before)
        self.resumed(run, "--set", "train.steps=6")
        self.assertEqual(run.checkpoints()[-1], 6)

    def test_model_that_was_moved_is_named_anew(self):
        """A run that trains adapters needs its base weights, and compares them with those that it began with."""
        base = {"model.path": "base", "model.weights": "load", "model.lora.targets": ["c_attn"], "train.decay": "constant"}
        self.write_model("base", weights=True)
        whole = self.train("whole", {**base, "train.steps": 6})
        run = self.train("run", base)
        (self.home / "base").rename(self.home / "moved")
        refusal = self.refused("resume", "runs/run", "--set", "train.steps=6")
        self.assertRegex(refusal, rf"the run's model, {self.home}/base, is not .*--set model\.path=DIRECTORY\n\Z")
        out = self.resumed(run, "--set", "train.steps=6", "--set", "model.path=moved")
        self.assertRegex(out, r"changed: .*model\.path \"\S*/moved\" instead of")
        self.assert_same_bits(whole.learnt(6), run.learnt(6))
        shutil.copytree(self.home / "moved", self.home / "other")
        weights = self.home / "other/model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"\x3f")
        out, _ = self.ended(10, "resume", "runs/run", "--set", "train.steps=8", "--set", "model.path=other")
        self.assertRegex(out, r"tensor \S+ of the model is not the one that this run's adapters were trained with")
        self.assertEqual(run.checkpoints()[-1], 6)

    def test_edited_recipe_of_a_run_is_ignored_and_named(self):
        run = self.train("run", {"train.decay": "constant"})
        file = run.path / "recipe.toml"
        self.assertNotIn("was edited", self.resumed(run))
        file.write_text(file.read_text().replace("learning_rate = 0.003", "learning_rate = 0.5"))
        out = self.resumed(run, "--set", "train.steps=6")
        self.assertIn("runs/run/recipe.toml was edited since it was written (train.learning_rate)", out)
        self.assertEqual(run.metrics()[-1]["learning_rate"], 0.003)
        self.assertNotIn("was edited", self.resumed(run))

    # The step after the checkpoint is finite and ruins the weights: decay beyond 2 / learning rate multiplies them by less
    # than -1 in every step. Losses grow, then are not finite.
    RUIN = ("--set", "train.learning_rate=10", "--set", "train.weight_decay=10")
    GOOD = {"model.dtype": "bfloat16", "train.clip": 0, "train.decay": "constant", "checkpoint.keep": 2}

    def goodness(self, run):
        out = self.ok("checkpoint", "list", "runs/run", "--json")
        good = {one["step"]: one["good"] for one in json.loads(out)["checkpoints"]}
        self.assertEqual(sorted(good), run.checkpoints())
        return good

    def test_ruined_weights_replace_no_checkpoint_that_is_known_to_be_good(self):
        run = self.train("run", self.GOOD)
        self.assertEqual(run.checkpoints(), [2, 4])
        self.assertEqual(self.goodness(run), {2: True, 4: None}, "no loss of the last one has been seen")
        out, err = self.ended(40, "resume", "runs/run", *self.RUIN, "--set", "train.steps=60")
        skipped = [line["step"] for line in run.metrics() if line["skipped"]]
        self.assertNotIn(5, skipped)
        self.assertEqual([one["step"] for one in run.events("checkpoint") if one["step"] in skipped], [])
        self.assertGreater(run.checkpoints()[-1], 5, "weights that are ruined were saved, too")
        self.assertEqual(run.checkpoints()[0], 4)
        good = self.goodness(run)
        self.assertEqual((good[4], good[run.checkpoints()[-1]]), (True, False))
        self.assertEqual((out + err).count("not finite for 5 steps in a row"), 1, out + err)
        advice = "strait resume runs/run --from 4 --set train.learning_rate=1   (the newest checkpoint that is known to be good)"
        self.assertEqual(re.findall(r"(?m)^(?:resume|or|again) .*", out), [f"resume    {advice}"])
        code, out, err = self.strait("checkpoint", "prune", "runs/run", "--keep", "1")
        self.assertEqual((code, [4, run.checkpoints()[-1]]), (0, run.checkpoints()), out + err)
        # Without a word from where, a resume passes over them, too.
        out = self.resumed(run, "--set", "train.learning_rate=0.003", "--set", "train.weight_decay=0.1", "--set", "train.steps=6")
        self.assertIn("step 4 is the newest checkpoint that is known to be good: the losses of the weights of step", out)
        self.assertEqual(run.checkpoints(), [4, 6])

    def test_run_that_ends_with_diverged_losses_says_so(self):
        run = self.train("run", self.GOOD)
        out = self.resumed(run, *self.RUIN, "--set", "train.steps=7")
        [said] = re.findall(r"(?m)^the launcher: (the loss has diverged: it is .* at step 7, more than the 5\.549 of a guess .*)$", out)
        self.assertEqual([one["text"] for one in run.events("stage_event") if one["name"] == "diverged"], [said])
        self.assertEqual(run.outcome()["code"], 0)
        line, code, out, err = self.follow(out, "go back")
        self.assertEqual(line, "strait resume runs/run --from 4 --set train.learning_rate=1")

    def test_run_without_a_finite_step_does_not_blame_the_learning_rate(self):
        model = self.write_model("huge", weights=True)
        tensors = runs.read_safetensors(model / "model.safetensors")
        for name, value in (("transformer.wte.weight", 3e38), ("transformer.ln_f.bias", 1.0)):
            kind, shape, data = tensors[name]
            tensors[name] = (kind, shape, struct.pack("<f", value) * (len(data) // 4))
        runs.write_safetensors(model / "model.safetensors", tensors)
        settings = {**self.GOOD, "model.path": "huge", "model.weights": "load", "train.steps": 9}
        out, _ = self.ended(40, "run", self.write_recipe("run", settings))
        self.assertEqual(self.run_of("run").checkpoints(), [])
        self.assertRegex(out, r"(?m)^again +strait run runs/run/recipe.toml --replace --set model.dtype=float32   \(no step was ever "
                              r"finite, so the learning rate is not why\)$")
        line, code, out, err = self.follow(out, "again")
        self.assertEqual(code, 40, out + err)
        self.assertRegex(out, r"(?m)^again .*--replace   \(no step was ever finite: change the weights or the data first\)$")

    def test_advice_after_divergence_works(self):
        # Decay as above, from about the 40th step on.
        wild = {"train.steps": 200, "train.learning_rate": 10, "train.weight_decay": 10, "train.warmup": 2000,
                "checkpoint.every": 5}
        out, _ = self.ended(40, "run", self.write_recipe("wild", wild))
        run = self.run_of("wild")
        [good] = [int(step) for step in re.findall(r"--from (\d+)", out)]
        self.assertIn(good, run.checkpoints())
        line, code, _, err = self.follow(out, "resume")
        self.assertEqual(line, f"strait resume runs/wild --from {good} --set train.learning_rate=1")
        self.assertNotIn("would change", err)
        self.assertEqual(run.plan()["recipe"]["train"]["learning_rate"], 1)
        # Without a checkpoint the run begins anew, and here it then ends well.
        out, _ = self.ended(40, "run", self.write_recipe("none", {**wild, "checkpoint.every": 0}))
        line, code, out, err = self.follow(out, "again")
        self.assertIn("strait run runs/none/recipe.toml --replace --set train.learning_rate=1", line)
        self.assertIn("the earlier run is now", out)

    def test_second_ctrl_c_names_the_newest_checkpoint(self):
        launched = self.start("run", {"train.steps": 100_000})
        launched.at_step(5)
        runs.stop_process(launched.run.stages()[1])
        launched.signal(signal.SIGINT)
        launched.at_event("stopping")
        launched.signal(signal.SIGINT)
        self.assertEqual(launched.end(), 130)
        newest = launched.run.checkpoints()[-1]
        self.assertRegex(launched.output(), rf"resume +strait resume runs/run   \(from step {newest}\)")
        self.assertEqual(launched.run.outcome()["stopped"], True)
        # A stopped run says so, and goes on.
        launched = self.launch("resume", "runs/run", name="run")
        launched.wait_for("a step", lambda: re.search(r"step \d+/100000 · loss", launched.output()))
        launched.end_by(signal.SIGINT, 0)
        step = launched.run.outcome()["step"]
        self.assertIn(f"stopped on request after step {step} of 100000", launched.output())
        out = self.ok("status", "runs/run")
        self.assertIn(f"stopped on request after step {step} of 100000; resume with: strait resume runs/run", out)
        self.assertEqual(launched.run.outcome()["meaning"], "stopped")


if __name__ == "__main__":
    runs.main()
