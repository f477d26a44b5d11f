"""Two replicas whose gradients NCCL sums: they learn what they learn over links, and both have the same
model. For all.sh, on a machine with GPUs.

    STRAIT_BIN=build/gpu/bin python3 tests/gpu/nccl_replicas.py

With two GPUs they share a host. NCCL takes no two of its members on one GPU of a machine: with a single one
the replicas are on two hosts, each an sshd on loopback, which NCCL takes for machines and joins over sockets.
"""

import os
import pathlib
import signal
import subprocess
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "hosts"), str(TESTS / "processes")]
import hosts  # noqa: E402
import runs  # noqa: E402

STEPS = 12


def gpus():
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    return listed.count("GPU ")


class Replicas:
    """The tests, whatever hosts the replicas are on."""

    SETTINGS = {
        **runs.RunCase.SETTINGS, "model.device": "cuda", "pipeline.stages": 1, "pipeline.replicas": 2,
        "train.steps": STEPS, "train.batch": 8, "train.micro_batch": 2, "checkpoint.every": 4,
        "sync.method": "allreduce",
    }

    def placed(self, settings):
        return settings

    def sums(self, run):
        return [e["text"] for e in run.events("stage_event") if e["name"] == "gradient_sums"]

    def assert_summed_by_nccl(self, run):
        self.assertEqual(len(self.sums(run)), 2)
        for text in self.sums(run):
            self.assertIn("gradients are summed by NCCL 2.", text)

    def test_learn_what_they_learn_over_links(self):
        links = self.train("links", self.placed({"sync.group": "never"}))
        nccl = self.train("nccl", self.placed({"sync.group": "always"}))
        self.assert_summed_by_nccl(nccl)
        for step, values in links.curve().items():
            for one, other in zip(values, nccl.curve()[step]):
                self.assertLess(abs(one - other), 1e-4 * abs(one), step)
        # Members compare checksums of their models in every step, so a run that ends had no fork.
        again = self.train("again", self.placed({"sync.group": "always"}))
        self.assertEqual(nccl.curve(), again.curve())
        shared = self.train("shared", self.placed({"sync.group": "always", "sync.share_state": True}))
        self.assertEqual(nccl.curve(), shared.curve())

    def test_end_when_one_is_killed(self):
        endless = {"sync.group": "always", "train.steps": 100000}
        launched = self.start("killed", self.placed(endless))
        launched.at_step(3)
        os.kill(launched.run.processes()["0.1"], signal.SIGKILL)
        self.assertNotEqual(launched.end(), 0)
        self.assertIn("0.1", launched.output())


@unittest.skipIf(gpus() < 2, "one GPU: see OfTwoHosts")
class OfOneHost(Replicas, runs.RunCase):
    def test_sum_by_nccl_unless_told_otherwise(self):
        self.assert_summed_by_nccl(self.train("auto"))


@unittest.skipIf(gpus() != 1, "several GPUs: see OfOneHost")
class OfTwoHosts(Replicas, hosts.HostsCase):
    COUNT = 2

    def placed(self, settings):
        return self.over_ssh(settings)


if gpus() == 1:
    os.environ[hosts.INSIDE] = "loopback"
    hosts.main()
else:
    runs.main()
