"""Two replicas, each a process with a GPU of its own, whose gradients NCCL sums: they learn what they
learn over links, and both have the same model. For all.sh, on a machine with two GPUs.

    STRAIT_BIN=build/gpu/bin python3 tests/gpu/nccl_replicas.py
"""

import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "processes"))
import runs  # noqa: E402

STEPS = 12


class NcclReplicas(runs.RunCase):
    SETTINGS = {
        **runs.RunCase.SETTINGS,
        "model.device": "cuda",
        "pipeline.stages": 1,
        "pipeline.replicas": 2,
        "train.steps": STEPS,
        "train.batch": 8,
        "train.micro_batch": 2,
        "checkpoint.every": 4,
        "sync.method": "allreduce",
    }

    def sums(self, run):
        return [e["text"] for e in run.events("stage_event") if e["name"] == "gradient_sums"]

    def test_learn_what_they_learn_over_links(self):
        links = self.train("links", {"sync.group": "never"})
        nccl = self.train("nccl", {"sync.group": "always"})
        self.assertEqual(len(self.sums(nccl)), 2)
        for text in self.sums(nccl):
            self.assertIn("gradients are summed by NCCL 2.", text)
        for step, values in links.curve().items():
            for one, other in zip(values, nccl.curve()[step]):
                self.assertLess(abs(one - other), 1e-4 * abs(one), step)
        # Members compare checksums of their models in every step, so a run that ends had no fork.
        again = self.train("again", {"sync.group": "always"})
        self.assertEqual(nccl.curve(), again.curve())

    def test_sum_by_nccl_unless_told_otherwise(self):
        for text in self.sums(self.train("auto")):
            self.assertIn("gradients are summed by NCCL 2.", text)

    def test_end_when_one_is_killed(self):
        launched = self.start("killed", {"sync.group": "always", "train.steps": 100000})
        launched.at_step(3)
        os.kill(launched.run.processes()["0.1"], signal.SIGKILL)
        self.assertNotEqual(launched.end(), 0)
        self.assertIn("0.1", launched.output())


runs.main()
