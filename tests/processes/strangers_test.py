"""Strangers at every port of a run that trains: refused, and the run does not notice. STRAIT_CAMPAIGNS: 10,000
connections and half a gigabyte of zeros for each port; STRAIT_SEED chooses the garbage."""

import concurrent.futures
import contextlib
import os
import random
import resource
import signal
import time
import unittest

import runs
import strangers

CAMPAIGN = bool(os.environ.get("STRAIT_CAMPAIGNS"))
SEED = int(os.environ.get("STRAIT_SEED", random.randrange(1 << 32)))
CONNECTIONS = 10_000 if CAMPAIGN else 300
ZEROS = (512 if CAMPAIGN else 64) << 20
MOST_MEMORY = 32 << 20  # that strangers may add to a process


class Strangers(runs.RunCase):
    RUN = {"pipeline.stages": 2, "pipeline.replicas": 2, "train.steps": 100_000, "train.decay": "constant", "checkpoint.every": 200,
           "hosts.restart": 1, "checkpoint.keep": 2}

    def setUp(self):
        super().setUp()
        self.shim = strangers.JobShim(self.home)
        self.program = self.shim.program
        # Descriptors for our own connections.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        self.choose = random.Random(SEED)

    def ports(self, launched):
        return strangers.ports_of([launched.process.pid, *launched.run.processes().values()])

    def server_key(self, launched, pid):
        if pid == launched.process.pid:
            return self.shim.job(launched.run.processes()["0.0"])["coordinator_key"]
        return self.shim.job(pid)["public_key"]

    def step(self, launched):
        return max((m["step"] for m in launched.run.metrics()[-1:]), default=0)

    def attack(self, name, launched, act):
        """One kind of attack, at every port; training must go on."""
        before, began = self.step(launched), time.monotonic()
        kept = [act(place, pid) for place, pid in sorted(self.ports(launched).items())]
        launched.at_step(before + 2)
        print(f"{name}: {time.monotonic() - began:.1f} s, {self.step(launched) - before} steps", flush=True)
        return kept

    def refuse_keys(self, launched, jobs_of_others):
        """Whoever has no key of this start is turned away, whatever else it knows."""
        mine = self.shim.job(launched.run.processes()["0.0"])

        def act(place, pid):
            server, name = self.server_key(launched, pid), "coordinator" if pid == launched.process.pid else self.shim.job(pid)["process"]
            at = f"{place[0]}:{place[1]}"
            callers = [("plain", None), (mine["process"], ("", "", "")), (mine["process"], (server, "", ""))]
            callers += [(job["process"], (server, job["public_key"], job["secret_key"])) for job in jobs_of_others]

            def call(caller):
                own, keys = caller
                words = ("plain", at, 20) if keys is None else ("link", at, own, name, mine["run"], mine["generation"])
                return words, strangers.stranger(*words, keys=keys)

            with concurrent.futures.ThreadPoolExecutor() as pool:
                for words, (is_in, said) in pool.map(call, callers):
                    self.assertFalse(is_in, f"{words}: {said}")

        self.attack(f"{3 + len(jobs_of_others)} peers without a key of this start", launched, act)

    def replay(self, launched, recorder):
        sent = []

        def act(place, _):
            for stream in recorder.streams_to(place[1])[:4]:
                for cut in (len(stream), self.choose.randrange(len(stream)) + 1):
                    sent.append(strangers.send_all(place, [stream[:cut]], 5))

        self.attack("recorded streams, again", launched, act)
        self.assertGreater(sum(sent), 0, "nothing was recorded")

    def test_strangers_change_nothing(self):
        other = self.train("other", {**self.RUN, "train.steps": 2, "checkpoint.every": 0})
        others = [self.shim.job(pid) for pid in other.processes().values()]
        recorder = None
        with contextlib.suppress(PermissionError):
            recorder = strangers.Recorder()
            self.addCleanup(recorder.stop)
        launched = self.start("loud", self.RUN)
        run = launched.run
        launched.at_step(3)
        old = self.shim.job(run.processes()["1.0"])
        os.kill(run.processes()["1.0"], signal.SIGKILL)
        launched.wait_for("the second generation", lambda: len(run.events("training")) == 2)
        watch = strangers.MemoryWatch(launched)
        self.addCleanup(watch.stop)
        launched.at_step(self.step(launched) + 2)
        ports = self.ports(launched)
        self.assertGreaterEqual(len(ports), 4, ports)
        if recorder:
            recorder.stop()
        print(f"seed {SEED}; {len(ports)} ports of {len(set(ports.values()))} processes", flush=True)

        open_ones = self.attack("silent connections", launched, lambda place, _: strangers.say_nothing(place))
        self.attack("garbage", launched, lambda place, _: strangers.send_garbage(place, self.choose))
        self.refuse_keys(launched, [others[0], others[-1], old])
        if recorder:
            self.replay(launched, recorder)
        zeros = self.attack("zeros", launched, lambda place, _: strangers.send_zeros(place, ZEROS))
        standing = self.attack("connections", launched, lambda place, _: self.flood(place))
        for sockets in open_ones:
            for one in sockets:
                one.close()
        self.assertEqual(self.ports(launched), ports)

        self.assertEqual(self.strait("stop", "runs/loud")[0], 0)
        self.assertEqual(launched.end(), 0, launched.output())
        self.assertEqual(len(run.events("restart")), 1)
        loud = watch.stop()
        last = run.metrics()[-1]["step"]
        quiet_launched = self.start("quiet", self.RUN)
        watch = strangers.MemoryWatch(quiet_launched)
        self.addCleanup(watch.stop)
        quiet_launched.at_step(last)
        quiet_launched.signal(signal.SIGTERM)
        self.assertEqual(quiet_launched.end(), 0, quiet_launched.output())
        quiet = watch.stop()
        expected = {step: one for step, one in quiet_launched.run.curve().items() if step <= last}
        self.assert_same_bits((expected, {}), (run.curve(), {}))
        growth = {name: loud[name] - quiet[name] for name in quiet}
        print(f"{last} steps; zeros taken {max(zeros) >> 20} of {2 * ZEROS >> 20} MiB at most; connections standing {standing}; "
              f"peak memory beside a quiet run, MiB: {({name: round(more / (1 << 20), 1) for name, more in growth.items()})}", flush=True)
        for name, more in growth.items():
            self.assertLess(more, MOST_MEMORY, name)

    def flood(self, place):
        """How many of so many connections stood at the same time."""
        sockets = strangers.flood(place, CONNECTIONS)
        for one in sockets:
            one.close()
        return len(sockets)

    def test_connections_beyond_the_limit_of_descriptors_end_nothing(self):
        """Strangers take every descriptor that a process may have, while it saves checkpoints."""
        limit = 256
        settings = {**self.RUN, "pipeline.replicas": 1, "checkpoint.every": 20}
        narrow = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        launched = self.start("starved", settings, preexec_fn=narrow)
        launched.at_step(3)
        for _ in range(60 if CAMPAIGN else 6):
            before = self.step(launched)
            for place in self.ports(launched):
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
