"""Strangers at every port of a run that trains: refused, and the run does not notice."""

import contextlib
import os
import resource
import signal
import statistics
import time
import unittest

import runs
import strangers


class Strangers(strangers.Attacks, runs.RunCase):
    RUN = {"pipeline.stages": 2, "pipeline.replicas": 2, "train.steps": 100_000, "train.decay": "constant", "checkpoint.every": 200,
           "hosts.restart": 1, "checkpoint.keep": 2}

    def setUp(self):
        super().setUp()
        self.shim = strangers.JobShim(self.home)
        self.program = self.shim.program

    def server(self, launched, pid):
        if pid == launched.process.pid:
            return "coordinator", self.shim.job(launched.run.processes()["0.0"])["coordinator_key"]
        job = self.shim.job(pid)
        return job["process"], job["public_key"]

    def test_strangers_change_nothing(self):
        other = self.train("other", {**self.RUN, "train.steps": 2, "checkpoint.every": 0})
        others = [self.shim.job(pid) for pid in other.processes().values()]
        recorders = []
        with contextlib.suppress(PermissionError):
            recorders.append(strangers.Recorder())
            self.addCleanup(recorders[0].stop)
        launched = self.start("loud", self.RUN)
        run = launched.run
        launched.at_step(3)
        old = self.shim.job(run.processes()["1.0"])
        os.kill(run.processes()["1.0"], signal.SIGKILL)
        launched.wait_for("the second generation", lambda: len(run.events("training")) == 2)
        watch = self.watch_memory(launched)
        launched.at_step(self.step(launched) + 2)
        ports = self.ports(launched)
        self.assertGreaterEqual(len(ports), 4, ports)
        for recorder in recorders:
            recorder.stop()
        self.attack_all(launched, self.shim.job(run.processes()["0.0"]), [others[0], others[-1], old], recorders)

        self.assertEqual(self.strait("stop", "runs/loud")[0], 0)
        self.assertEqual(launched.end(), 0, launched.output())
        self.assertEqual(len(run.events("restart")), 1)
        self.assert_same_as_quiet(run, self.RUN, watch.stop())

    @runs.campaign
    def test_garbage_costs_little_speed(self):
        """Pairs of short times in one run, with garbage and without, in random order."""
        launched = self.start("paired", self.RUN)
        launched.at_step(30)
        garbage = strangers.Garbage([place for place, _ in self.ports(launched)])
        self.addCleanup(garbage.stop)
        ratios, loud_seconds = [], 0
        for _ in range(24):
            rates = {}
            for loud in self.choose.sample([False, True], 2):
                (garbage.on.set if loud else garbage.on.clear)()
                time.sleep(0.3)
                before, began = self.step(launched), time.monotonic()
                time.sleep(2.5)
                seconds = time.monotonic() - began
                rates[loud] = (self.step(launched) - before) / seconds
                loud_seconds += (seconds + 0.3) * loud
            ratios.append(rates[True] / rates[False])
        garbage.stop()
        ratio = statistics.median(ratios)
        print(f"{garbage.sent / loud_seconds:.0f} connections a second; speed beside them {ratio:.2f} of that without "
              f"(mean {statistics.mean(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f})", flush=True)
        self.assertGreater(ratio, 0.9)  # of a machine that does other things, too
        self.assertEqual(self.strait("stop", "runs/paired")[0], 0)
        self.assertEqual(launched.end(), 0, launched.output())

    def test_connections_beyond_the_limit_of_descriptors_end_nothing(self):
        """Strangers take every descriptor that a process may have, while it saves checkpoints."""
        limit = 256
        settings = {**self.RUN, "pipeline.replicas": 1, "checkpoint.every": 20}
        narrow = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        launched = self.start("starved", settings, preexec_fn=narrow)
        launched.at_step(3)
        for _ in range(60 if runs.CAMPAIGN else 6):
            before = self.step(launched)
            for place, _ in self.ports(launched):
                sockets = strangers.flood(place, 2 * limit, 3)
                for one in sockets:
                    one.close()
            launched.at_step(before + 1)
        self.assertEqual(self.strait("stop", "runs/starved")[0], 0)
        self.assertEqual(launched.end(), 0, launched.output())
        saved = launched.run.checkpoints()
        self.assertEqual(saved[-1], self.step(launched))
        self.assertEqual(launched.run.events("checkpoint_failed"), [])
        self.assertNotIn("Too many open files", launched.output())


if __name__ == "__main__":
    unittest.TestCase.maxDiff = None
    runs.main()
