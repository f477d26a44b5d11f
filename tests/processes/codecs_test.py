"""Compressed boundaries in real runs of three processes: what they cost in loss and bytes, what is
remembered of samples through checkpoints, on disk and within limits, and what forgetting does.
"""

import json
import shutil

import runs

STEPS = 24  # of four rows: nearly five epochs of the 20 that this data packs into
MIDDLE = 10  # a checkpoint, two epochs from the start
RAW = {"codec.forward": "raw", "codec.backward": "raw"}
DELTA = {"codec.forward": "delta", "codec.forward_bits": 4, "codec.backward": "fixed", "codec.backward_bits": 5}
TRANSFORM = {"codec.forward": "transform", "codec.forward_bits": 4, "codec.first_bits": 6,
             "codec.backward": "transform", "codec.backward_bits": 4}


class Compressed(runs.RunCase):
    SETTINGS = {
        **runs.RunCase.SETTINGS, "pipeline.stages": 3, "train.steps": STEPS, "train.batch": 4, "train.micro_batch": 2,
        "checkpoint.every": MIDDLE, "checkpoint.keep": 3,
    }

    def setUp(self):
        super().setUp()
        self.write_data("train.jsonl", 32)

    def boundaries(self, run, direction="forward"):
        """boundary -> its lines over the steps, in order."""
        found = {}
        for line in run.metrics():
            for one in line["boundaries"]:
                if one["direction"] == direction:
                    found.setdefault(one["boundary"], []).append(one)
        return found

    def total(self, run, name, direction="forward"):
        return sum(one[name] for lines in self.boundaries(run, direction).values() for one in lines)

    def learnt(self, run):
        """Values that are compared bit by bit: losses, norms, weights and moments."""
        curve = run.curve()
        self.assertEqual(sorted(curve), list(range(1, STEPS + 1)))
        state = run.state(STEPS)
        return curve, {name: state[name] for name in state if not name.startswith("cache/")}

    def dropped(self, run):
        return [e["text"] for e in run.events("stage_event") if e["name"] == "caches_dropped"]


class Training(Compressed):
    def test_delta_matches_raw_loss_with_fewer_bytes(self):
        raw = self.train("raw", {**RAW, "train.steps": 60})
        delta = self.train("delta", {**DELTA, "train.steps": 60})
        last = [run.metrics()[-1]["loss"] for run in (raw, delta)]
        self.assertLess(last[0], raw.metrics()[0]["loss"] - 1, "it learnt nothing")
        # One part in fifty: far more than was ever seen, far less than what a broken codec does.
        self.assertLess(abs(last[1] - last[0]) / last[0], 0.02, last)
        for boundary, lines in self.boundaries(delta).items():
            with self.subTest(boundary):
                self.assert_changes(lines)
        self.assertEqual(self.total(delta, "resends"), 0)
        # Width 32 is half a group: a token of 128 bytes becomes its top exponent, one scale and the
        # bits of 32 values: 18 bytes forward, 22 backward.
        last = delta.metrics()[-1]["boundaries"]
        for direction, ratio in (("forward", 6.5), ("backward", 5.5)):
            for one in last:
                if one["direction"] == direction:
                    self.assertGreater(one["raw_bytes"] / one["sent_bytes"], ratio)
        wire = [sum(m["bytes_forward"] for m in run.metrics()) for run in (raw, delta)]
        self.assertGreater(wire[0] / wire[1], 2.5, "framing and heads included")
        for line in raw.metrics():
            for one in line["boundaries"]:
                self.assertEqual(one["sent_bytes"], one["raw_bytes"])
                self.assertIsNone(one["change"])

    def assert_changes(self, lines):
        rows = lines[0]["first_visits"] + lines[0]["hits"]
        self.assertEqual(rows, 4)
        self.assertIsNone(lines[0]["change"], "nothing was there to compare with")
        self.assertEqual(lines[0]["hits"], 0)
        self.assertEqual(lines[-1]["hits"], 4)
        self.assertEqual(lines[-1]["first_visits"], 0)
        self.assertGreater(lines[-1]["cache_bytes"], 0)
        for one in lines:
            self.assertLess(one["error"], 0.1)
        changes = [one["change"] for one in lines if one["change"] is not None]
        self.assertTrue(changes)
        self.assertLess(changes[-1], 1, "a change is smaller than the value, or delta is no use")

    def test_auto_reports_its_choices_with_prices(self):
        raw = self.train("raw", RAW)
        run = self.train("auto", {"codec.forward": "auto", "codec.backward": "auto"})
        last = [r.metrics()[-1]["loss"] for r in (raw, run)]
        self.assertLess(abs(last[1] - last[0]) / last[0], 0.05, last)
        self.assertEqual(self.total(run, "resends"), 0)
        choices = [e["text"] for e in run.events("stage_event") if e["name"] == "codec_chosen"]
        # Before anything is measured it sends few bits, and both ends follow whatever comes later.
        for lines in self.boundaries(run).values():
            self.assertLess(lines[0]["sent_bytes"], lines[0]["raw_bytes"] / 3)
        if not choices:
            self.assertGreater(self.total(run, "hits"), 0, "it changed its mind and did not tell")
        for text in choices:
            words = r"boundary \d\.0>\d\.0 (forward|backward), from step \d+ on: \w+ .*, "
            words += r"\S+ m?s a step \(.*\) at \S+ Mbit/s with \S+ m?s of compute"
            self.assertRegex(text, words)

    def test_forecast_matches_sent_bytes(self):
        for name, settings in [("raw", RAW), ("delta", DELTA), ("whole", {**DELTA, "codec.first_bits": 16}),
                               ("fixed", {"codec.forward": "fixed", "codec.backward": "fixed"})]:
            with self.subTest(name):
                run = self.train(name, settings)
                links = [x for x in run.plan()["links"] if x["use"] == "boundary"]
                for link in links:
                    self.assert_forecast(run, link)

    def assert_forecast(self, run, link):
        boundary = link["name"].removeprefix("boundary ")
        lines = self.boundaries(run)[boundary]
        # Payloads are without the messages' heads, and padding differs from step to step.
        epoch = run.plan()["epoch_steps"]
        for part, forecast in [(lines[:epoch], "first_forward_bytes"), (lines[epoch : 2 * epoch], "forward_bytes")]:
            mean = sum(one["sent_bytes"] for one in part) / len(part)
            self.assertLess(abs(link[forecast] - mean) / mean, 0.1, f"{forecast} of {boundary}")
        mean = self.total(run, "sent_bytes", "backward") / len(lines) / 2
        self.assertLess(abs(link["backward_bytes"] - mean) / mean, 0.1)

    def test_codecs_appear_in_plan_status_report_and_console(self):
        recipe = self.write_recipe("seen", DELTA)
        out = self.ok("plan", recipe)
        for word in (r"delta 4 bits \(8 bits on a cache miss\) forward, fixed 5 bits backward",
                     r"boundary 0\.0>1\.0 .* 20 of 20 ",
                     r"forecast at .* s in the first epoch \(5 steps\)"):
            self.assertRegex(out, word)
        out = self.ok("run", recipe)
        self.assertRegex(out, r"\nsent +boundaries \S+ \wB \(\d\.\dx fewer than float32\)")
        table = r"0\.0>1\.0 +forward .*\d\.\dx .*%"
        code, out, err = self.strait("status", "runs/seen")
        self.assertRegex(out, table)
        page = (self.run_of("seen").path / "report.html").read_text()
        self.assertRegex(page, r'"0\.0>1\.0","forward",.*"\d\.\dx",.*%')

    def test_codecs_do_not_affect_evaluation_and_export(self):
        self.write_data("eval.jsonl", 20)
        run = self.train("seen", {**DELTA, "data.eval": "eval.jsonl", "train.eval_every": 8})
        self.assert_evaluates_as_trained(run, [8, 16, 24])
        self.ok("export", "runs/seen", "exported")
        names = runs.read_safetensors(self.home / "exported" / "model.safetensors")
        self.assertEqual([name for name in names if "cache" in name], [])
        without = self.train("without", DELTA)
        self.assertEqual(without.curve(), run.curve(), "evaluation touched training's codecs")


class CacheResume(Compressed):
    def test_resumed_run_with_caches_matches_bits(self):
        for name, settings in [
            ("nearest", DELTA), ("chunks", {**DELTA, "pipeline.stages": 2, "pipeline.schedule": "interleaved"}),
            ("transform", TRANSFORM), ("gradients", {**DELTA, "codec.backward": "delta", "codec.backward_bits": 2}),
        ]:
            with self.subTest(name):
                run = self.train(name, settings)
                reference = self.learnt(run)
                self.rewind_run(run, MIDDLE)
                self.assertNotIn("dropped", self.resumed(run))
                self.assert_same_bits(reference, self.learnt(run))
                self.assertEqual(self.total(run, "resends"), 0)

    def test_plan_counts_caches_only_where_samples_come_again(self):
        # 20 rows in steps of 3: the seventh step ends the epoch and has the first row again.
        for steps, filled in ((6, False), (7, True)):
            settings = {**DELTA, "train.steps": steps, "train.batch": 3, "train.micro_batch": 1, "checkpoint.every": 0}
            recipe = self.write_recipe("plan", settings)
            code, out, err = self.strait("plan", recipe, "--json")
            self.assertEqual((code, err), (0, ""))
            plan = json.loads(out)
            self.assertEqual((plan["train"]["rows"], plan["epoch_steps"]), (20, 7))
            self.assertEqual([one["cache_bytes"] > 0 for one in plan["processes"]], 3 * [filled])
            self.assertEqual("none is cached" in self.strait("plan", recipe)[1], not filled)
            run = self.train("plan", settings)
            self.assertEqual(self.total(run, "cache_bytes") > 0, filled)
            shutil.rmtree(run.path)

    def test_resume_with_other_split_drops_caches(self):
        run = self.train("run", DELTA)
        self.rewind_run(run, MIDDLE)
        out = self.resumed(run, "--set", "pipeline.stages=2")
        self.assertRegex(out, r"dropped.*another pipeline")
        self.assertEqual(len(self.dropped(run)), 1)
        self.assertEqual([p["name"] for p in run.plan()["processes"]], ["0.0", "1.0"])
        self.assert_caches_restarted(run)

    def assert_caches_restarted(self, run):
        lines = self.boundaries(run)["0.0>1.0"]
        self.assertEqual(lines[MIDDLE - 1]["hits"], 4)
        self.assertEqual(lines[MIDDLE]["hits"], 0, "it knew a sample that the other end forgot")
        self.assertEqual(lines[-1]["hits"], 4)
        self.assertEqual(self.total(run, "resends"), 0)
        losses = [m["loss"] for m in run.metrics()]
        self.assertEqual(len(losses), STEPS)
        self.assertLess(losses[-1], losses[MIDDLE - 1])

    def test_resume_refuses_other_rows(self):
        run = self.train("run", DELTA)
        self.rewind_run(run, MIDDLE)
        _, err = self.ended(10, "resume", "runs/run", "--set", "data.row=16")
        self.assertRegex(err, r"data\.row.*train\.learning_rate.*\[codec\]")
        self.assertEqual(run.plan()["recipe"]["data"]["row"], 32)


class Limits(Compressed):
    def entry(self):
        out = self.ok("plan", self.write_recipe("measured", DELTA), "--json")
        plan = json.loads(out)
        return plan["links"][0]["entry_bytes"], plan["train"]["rows"]

    def test_disk_cache_matches_bits_of_memory_cache(self):
        entry, rows = self.entry()
        memory = self.train("memory", DELTA)
        # The middle stage has two boundaries, so each gets half.
        disk = self.train("disk", {**DELTA, "codec.cache": 2 * 5 * entry})
        links = [x for x in disk.plan()["links"] if x["use"] == "boundary"]
        for link in links:
            self.assertEqual(link["cached_rows"], rows)
            self.assertEqual(link["cache_bytes"], 5 * entry)
        self.assert_same_bits(self.learnt(memory), self.learnt(disk))
        self.assertEqual(self.total(disk, "evictions"), 0)
        self.assertEqual(self.total(disk, "hits"), self.total(memory, "hits"))
        # A checkpoint holds what is on the disk, too.
        self.rewind_run(disk, MIDDLE)
        self.resumed(disk)
        self.assert_same_bits(self.learnt(memory), self.learnt(disk))
        left = [p for p in disk.path.rglob("*") if "cache" in p.name and "checkpoints" not in p.parts]
        self.assertEqual(left, [], "files of the cache were left behind")

    def test_samples_beyond_cache_are_sent_as_misses(self):
        entry, rows = self.entry()
        third = rows // 3
        tight = {**DELTA, "codec.cache": 2 * third * entry, "codec.cache_disk": 0}
        run = self.train("tight", tight)
        self.assertEqual(self.total(run, "resends"), 0)
        self.assertGreater(self.total(run, "evictions"), 0)
        for lines in self.boundaries(run).values():
            self.assertLessEqual(max(one["cache_bytes"] for one in lines), third * entry)
            self.assertGreater(sum(one["hits"] for one in lines), 0)
        self.assertLess(run.metrics()[-1]["loss"], run.metrics()[0]["loss"])
        # What was kept and what not goes through checkpoints, too.
        reference = self.learnt(run)
        self.rewind_run(run, MIDDLE)
        self.resumed(run)
        self.assert_same_bits(reference, self.learnt(run))


if __name__ == "__main__":
    runs.main()
