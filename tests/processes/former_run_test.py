"""A run directory that the release 0.1.0-eda4c4cedc63 left at step 4 of 8 resumes to its losses.

former_run.tar.gz is that directory: two stages, two replicas with cocktail, delta boundaries, and a
model of 2 blocks of width 16. Nothing of it is ever regenerated: a change that cannot read it breaks
the promise to users who resume. The recipe's hash covers the model's path, so it lies where it was.
"""

import json
import math
import pathlib
import shutil
import tarfile

import runs

# What the release itself printed for the steps after the checkpoint (x86-64 with AVX2).
LOSSES = {5: 5.3192738534618496, 6: 5.293589909374891, 7: 5.3315766723804, 8: 5.322751951986647}


HOME = pathlib.Path("/tmp/strait-former-run")


class FormerRun(runs.RunCase):
    def setUp(self):
        super().setUp()
        shutil.rmtree(HOME, ignore_errors=True)
        self.addCleanup(shutil.rmtree, HOME, ignore_errors=True)
        with tarfile.open(runs.ROOT / "tests/processes/former_run.tar.gz") as archive:
            archive.extractall(HOME.parent)
        self.run_path = HOME / "runs/former"

    def metrics(self):
        lines = (self.run_path / "metrics.jsonl").read_text().splitlines()
        return {line["step"]: line for line in map(json.loads, lines) if "loss" in line}

    def test_resumes_from_checkpoint_of_former_release(self):
        code, out, err = self.strait("resume", str(self.run_path))
        self.assertEqual((code, err), (0, ""), out)
        self.assertIn("step 4", out)
        steps = self.metrics()
        self.assertEqual(sorted(steps), list(range(1, 9)))
        for step, loss in LOSSES.items():
            # That release sent a tied table exactly, beside any codec; now its rows have 8 bits here.
            self.assertTrue(math.isclose(steps[step]["loss"], loss, rel_tol=3e-4), (step, steps[step]["loss"], loss))

    def test_exports_checkpoint_of_former_release(self):
        code, out, err = self.strait("export", str(self.run_path), str(self.home / "exported"))
        self.assertEqual((code, err), (0, ""), out)
        self.assertTrue((self.home / "exported/model.safetensors").exists())


if __name__ == "__main__":
    runs.main()
