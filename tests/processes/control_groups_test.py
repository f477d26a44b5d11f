"""In a container, a plan counts on what the container may use and not on the whole machine."""

import json
import math
import os
import subprocess
import unittest

import control_group
import runs


@unittest.skipUnless(control_group.usable(), "needs root, and control groups that it may write")
class ControlGroups(runs.RunCase):
    def test_plan_counts_on_the_cores_and_the_memory_of_its_group(self):
        config = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 64, "n_embd": 2048, "n_layer": 8, "n_head": 4}
        (self.home / "large").mkdir()
        (self.home / "large/config.json").write_text(json.dumps(config))
        recipe = self.write_recipe("group", {"model.path": "large", "data.train": "large.txt", "pipeline.stages": 1})
        (self.home / "large.txt").write_text("a text\n" * 400)
        group = control_group.ControlGroup("plan", cores=0.5, memory=3_000_000_000)
        self.addCleanup(group.close)
        group.add(os.getpid())
        code, out, err = self.strait("plan", recipe, "--json")
        self.assertEqual((code, err), (0, ""))  # the pauses of a quota are not the load of other programs
        plan = json.loads(out)
        self.assertEqual([host["cores"] for host in plan["hosts"]], [1])
        self.assertEqual([process["threads"] for process in plan["processes"]], [1])
        self.assertRegex(self.ok("plan", recipe), r"this machine has 3(\.00?)? GB: a run will be refused")

    def test_an_optimizer_on_disk_trains_what_the_memory_cannot_hold(self):
        config = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 32, "n_embd": 1024, "n_layer": 6, "n_head": 4}
        (self.home / "wide").mkdir()
        (self.home / "wide/config.json").write_text(json.dumps(config))
        (self.home / "wide.txt").write_text("a text\n" * 400)
        settings = {"model.path": "wide", "model.weights": "random", "data.train": "wide.txt", "data.row": 32,
                    "pipeline.stages": 1, "train.steps": 3, "train.batch": 2, "train.micro_batch": 1}
        parameters = sum(math.prod(shape) for shape in runs.gpt2_shapes(config).values())
        # Moments take half of what a parameter does; the limit leaves out three quarters of them.
        group = control_group.ControlGroup("disk", memory=10 * parameters + 450_000_000)
        self.addCleanup(group.close)

        def limited(name, **keys):
            recipe = self.write_recipe(name, {**settings, **keys})
            return subprocess.run([self.program, "run", recipe], cwd=self.home, capture_output=True, text=True,
                                  timeout=runs.scaled_timeout(300), preexec_fn=lambda: group.add(0))

        whole = self.train("whole", settings)
        self.train("roomy", {**settings, "train.offload": "disk"})  # with the memory that was planned
        self.assertNotEqual(limited("memory").returncode, 0)
        done = limited("disk", **{"train.offload": "disk"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(runs.Run(self.home / "runs/disk").curve(), whole.curve())


if __name__ == "__main__":
    runs.main()
