"""`strait checkpoint`: what is saved, whether each byte of it is right, a copy that goes on by itself, and what is removed."""

import json
import signal

import runs


class Checkpoints(runs.RunCase):
    SETTINGS = {**runs.RunCase.SETTINGS, "train.steps": 8, "checkpoint.every": 2, "checkpoint.keep": 4}

    def checkpoint(self, *words, code=0):
        out, err = self.ended(code, "checkpoint", *words)
        return out + err

    def listed(self, path="runs/run"):
        return {one["step"]: one for one in json.loads(self.checkpoint("list", path, "--json"))["checkpoints"]}

    def test_list_verify_copy_and_prune(self):
        self.run_ = self.train("run")
        self.assertEqual(list(self.listed()), [8, 6, 4, 2])
        for one in self.listed().values():
            self.assertEqual((one["state"], one["here"], one["problem"]), ("complete", "all", ""))
        self.assertRegex(self.checkpoint("list", "runs/run"), r"step 8 .*complete +.* in 6 files +whole on this machine")
        self.assertEqual(self.checkpoint("verify", "runs/run").count("every byte is right"), 4)
        self.damaged_tensor_is_named()
        self.copy_goes_on_to_same_bits()
        self.damaged_ones_do_not_count()
        self.copy_names_the_newer_one_that_it_passes_over()
        self.prune_keeps_what_the_rule_says()
        self.live_run_is_not_pruned()

    def damaged_tensor_is_named(self):
        shard = self.run_.path / "checkpoints/step-6/stage-1.replica-0.weights.safetensors"
        good = shard.read_bytes()
        shard.write_bytes(good[:-1] + bytes([good[-1] ^ 4]))
        header = json.loads(good[8 : 8 + int.from_bytes(good[:8], "little")])
        header.pop("__metadata__")
        last = max(header, key=lambda name: header[name]["data_offsets"][1])
        out = self.checkpoint("verify", "runs/run", code=32)
        self.assertEqual(out.count("every byte is right"), 3)
        self.assertIn(f'stage-1.replica-0.weights.safetensors: tensor "{last}" is damaged', out)
        self.assertIn("every byte is right", self.checkpoint("verify", "runs/run", "--step", "4"))
        self.assertIn("it has: 8, 6, 4, 2", self.checkpoint("verify", "runs/run", "--step", "5", code=10))
        self.assertIn("is damaged", self.checkpoint("copy", "runs/run", "broken", "--step", "6", code=32))
        self.assertFalse((self.home / "broken").exists())
        (self.home / "empty").mkdir()
        self.checkpoint("copy", "runs/run", "empty", "--step", "6", code=32)
        self.assertEqual(list((self.home / "empty").iterdir()), [])
        before = sorted(self.home.iterdir())
        for words in (("checkpoint", "copy", "runs/run", ""), ("export", "runs/run", "")):
            self.assertIn("the folder's name is empty", self.ended(10, *words)[1])
        self.assertEqual(sorted(self.home.iterdir()), before)
        manifest = self.run_.path / "checkpoints/step-6/manifest.json"
        text = manifest.read_bytes()
        at = text.rindex(b'"check"') + len(b'"check": "')
        manifest.write_bytes(text[:at] + bytes([text[at] ^ 0x80]) + text[at + 1 :])
        self.assertNotEqual(self.listed()[6]["state"], "complete")
        manifest.write_bytes(text)
        shard.write_bytes(good[:-1])
        out = self.ok("status", "runs/run")
        self.assertIn("6 (damaged, or of another build: strait checkpoint verify runs/run), ", out)
        self.assertNotIn("on hosts", out)
        shard.write_bytes(good)
        self.checkpoint("copy", "runs/run", "broken", "--step", "6")  # the failed copy is not in its way

    def copy_goes_on_to_same_bits(self):
        expected = self.run_.learnt(8)
        self.assertIn("strait resume elsewhere/copy", self.checkpoint("copy", "runs/run", "elsewhere/copy", "--step", "4"))
        out = self.ok("status", "elsewhere/copy")
        self.assertIn("a copy at step 4 that has not been started; resume it with: strait resume elsewhere/copy", out)
        self.run_.path.rename(self.home / "gone")  # the copy stands alone
        copy = runs.Run(self.home / "elsewhere/copy")
        self.resumed(copy)
        self.assert_same_bits(expected, copy.learnt(8))
        self.ok("export", "elsewhere/copy", "exported")
        (self.home / "gone").rename(self.run_.path)
        self.assertIn("exists already", self.checkpoint("copy", "runs/run", "elsewhere/copy", code=10))

    def damaged_ones_do_not_count(self):
        """Their sizes are right, so only their bytes show it."""
        name = "stage-1.replica-0.weights.safetensors"
        shards = {step: self.run_.path / f"checkpoints/step-{step}" / name for step in (8, 6, 4, 2)}
        good = {step: shard.read_bytes() for step, shard in shards.items()}

        def flip(step):
            shards[step].write_bytes(good[step][:-1] + bytes([good[step][-1] ^ 4]))

        flip(8)
        self.assertIn("step 6 is intact: copy it with --step 6", self.checkpoint("copy", "runs/run", "newest", code=32))
        out = self.checkpoint("prune", "runs/run", "--keep", "1", "--dry-run")
        self.assertIn(f"step-8/{name}", out)
        self.assertEqual(sorted(line.rsplit("-")[-1] for line in out.splitlines() if "would remove" in line), ["2", "4"])
        for step in (6, 4, 2):
            flip(step)
        self.assertIn("nothing was removed", self.checkpoint("prune", "runs/run", "--keep", "1", code=32))
        self.assertEqual(list(self.listed()), [8, 6, 4, 2])
        for step, shard in shards.items():
            shard.write_bytes(good[step])

    def copy_names_the_newer_one_that_it_passes_over(self):
        name = "stage-1.replica-0.weights.safetensors"
        shard = self.run_.path / "checkpoints/step-8" / name
        good = shard.read_bytes()
        shard.write_bytes(good[:-1])
        out = self.checkpoint("copy", "runs/run", "older")
        self.assertRegex(out, rf"copying runs/run/checkpoints/step-6, because a newer checkpoint cannot be used: .*step-8/{name}")
        self.assertIn("step 6 (", out)
        self.run_from_it_names_it_too(name)
        shard.write_bytes(good)
        self.assertNotIn("newer", self.checkpoint("copy", "runs/run", "newest"))

    def run_from_it_names_it_too(self, name):
        recipe = self.write_recipe("next", {"model.weights": "runs/run", "train.steps": 1})
        for verb in ("plan", "run"):
            _, err = self.ended(0, verb, recipe)
            self.assertRegex(err, rf"going on from runs/run/checkpoints/step-6, because a newer .*step-8/{name}")

    def prune_keeps_what_the_rule_says(self):
        folder = self.run_.path / "checkpoints"
        (folder / "step-5").mkdir()
        (folder / "step-9").mkdir()  # newer than the newest: it may be being written
        rule = ("prune", "runs/run", "--keep", "1", "--every", "4")
        out = self.checkpoint(*rule, "--dry-run")
        self.assertEqual(sorted(line.rsplit("-")[-1] for line in out.splitlines() if "would remove" in line), ["2", "5"])
        self.assertEqual(list(self.listed()), [9, 8, 6, 5, 4, 2])
        # No loss of the weights of step 8 was seen: step 6 is the newest that is known to be good.
        self.assertEqual([one["good"] for one in self.listed().values()], [None, None, True, None, True, True])
        self.assertIn("kept: 8, 6, 4", self.checkpoint(*rule))
        self.assertEqual(list(self.listed()), [9, 8, 6, 4])
        self.checkpoint("prune", "runs/run", "--keep", "0", code=10)
        (folder / "step-9").rmdir()

    def live_run_is_not_pruned(self):
        again = self.launch("resume", "runs/run", "--set", "train.steps=100000", name="run")
        again.at_step(10)
        self.assertIn("in use by a live run", self.checkpoint("prune", "runs/run", "--keep", "1", code=10))
        again.signal(signal.SIGTERM)
        again.signal(signal.SIGTERM)
        again.end()


if __name__ == "__main__":
    runs.main()
