"""Lost replicas that rejoin while the others train: the other processes are not restarted, all replicas
stay equal, and events record what happened.
"""

import os
import random
import signal
import statistics
import time

import replica_changes
import runs


class Returns(replica_changes.ReplicaChanges, runs.RunCase):
    SETTINGS = {
        **runs.RunCase.SETTINGS, "pipeline.stages": 2, "pipeline.replicas": 3, "sync.on_loss": "continue",
        "sync.method": "cocktail", "sync.random": 0.3, "sync.top": 0.5, "data.eval": "train.jsonl", "train.batch": 12,
        "train.micro_batch": 2, "train.steps": 100_000,
    }

    def lose(self, launched, victim):
        """Kills the process and waits for the eviction of its replica. Returns the former processes."""
        before = launched.run.processes()
        self.lose_replica(launched, lambda: os.kill(before[victim], signal.SIGKILL))
        return before

    def stop(self, launched):
        super().stop(launched)
        self.wait_for_no_processes(5)

    def assert_rejoin_recorded(self, run, replica):
        joined = run.events("replica_joined")[-1]
        self.assertEqual(joined["replica"], replica)
        self.assertEqual(joined["replicas"], [0, 1, 2])
        self.assertIn(joined["step"], [e["step"] for e in run.events("checkpoint")])
        self.assertEqual(run.status()["replicas"], [0, 1, 2])
        lines = run.metrics()
        self.assertEqual([m["step"] for m in lines], list(range(1, len(lines) + 1)))
        # From its first step on the rows of all are counted again, half as many more than before; rows
        # differ in their tokens, so several steps are looked at.
        tokens = [m["tokens"] for m in lines]
        between = 0.82 * tokens[0]
        self.assertLess(statistics.mean(tokens[joined["step"] - 4 : joined["step"]]), between)
        self.assertGreater(statistics.mean(tokens[joined["step"] :][:4]), between)
        self.assertEqual({len(m["idle"]) for m in lines[joined["step"]:]}, {6})

    def test_killed_replica_rejoins_repeatedly(self):
        seed = int(os.environ.get("STRAIT_TEST_SEED", time.time_ns() % 1_000_000))
        print(f"seed {seed}")
        chance = random.Random(seed)
        launched = self.start("back")
        launched.at_step(3)
        for _ in range(2):
            victim = chance.choice(["0.0", "1.0", "0.1", "1.1", "0.2", "1.2"])
            with self.subTest(victim=victim, seed=seed):
                before = self.lose(launched, victim)
                self.train_on(launched)
                self.rejoin(launched, victim[-1])
                self.train_on(launched)
                after = launched.run.processes()
                for name, pid in before.items():
                    (self.assertNotEqual if name[-1] == victim[-1] else self.assertEqual)(after[name], pid, name)
                self.assert_rejoin_recorded(launched.run, int(victim[-1]))
        self.stop(launched)
        # What all three have saved is what a resume goes on from, each with its own state.
        again = self.launch("resume", launched.run.path, name="back")
        again.at_training()
        self.train_on(again, 1)
        self.stop(again)
        self.assertNotIn("agreed model", again.output())

    def test_rejoin_with_allreduce_matches_resume_of_all(self):
        settings = {"sync.method": "allreduce", "sync.random": None, "sync.top": None, "checkpoint.keep": 1000}
        launched = self.start("bits", settings)
        launched.at_step(3)
        self.lose(launched, "1.1")
        self.train_on(launched)
        self.rejoin(launched, 1)
        self.train_on(launched)
        self.stop(launched)
        run = launched.run
        (joined,) = run.events("replica_joined")
        expected = run.curve()
        self.rewind_run(run, joined["step"])
        again = self.launch("resume", run.path, name="bits")
        again.at_step(max(expected))
        self.stop(again)
        got = run.curve()
        self.assertEqual({step: got[step] for step in expected}, expected)

    def test_replica_that_dies_while_rejoining_is_rejected(self):
        launched = self.start("dies")
        launched.at_step(3)
        before = self.lose(launched, "0.2")
        back = self.launch("resume", launched.run.path, "--replica", 2)
        launched.wait_for("a new process", lambda: launched.run.processes()["0.2"] != before["0.2"])
        os.kill(launched.run.processes()["0.2"], signal.SIGKILL)
        code = back.end()
        launched.wait_for("the end of that", lambda: launched.run.events("rejoin_failed")
                          or len(launched.run.events("replica_left")) == 2)
        # Where it was quick enough to take part, it left again.
        if launched.run.events("rejoin_failed"):
            self.assertEqual(code, 20, back.output())
            self.assertIn("replica 2 could not rejoin", back.output())
        self.train_on(launched)
        self.rejoin(launched, 2)
        self.train_on(launched)
        self.stop(launched)

    def test_resume_reports_replica_that_leaves_again(self):
        launched = self.start("brief")
        launched.at_step(3)
        self.lose(launched, "0.2")
        back = self.launch("resume", launched.run.path, "--replica", 2)
        launched.at_event("rejoin_started")
        # It does not look while the replica takes part; its processes take a second to start.
        back.signal(signal.SIGSTOP)
        launched.at_event("replica_joined")
        (joined,) = launched.run.events("replica_joined")
        self.lose(launched, "1.2")
        back.signal(signal.SIGCONT)
        self.assertEqual(back.end(), 20, back.output())
        self.assertIn(f"replica 2 joined at step {joined['step']} and has left again: " "stage 1.2 ", back.output())
        self.rejoin(launched, 2)
        self.stop(launched)

    def begin_without(self, name, *replicas):
        words = [word for replica in replicas for word in ("--without", replica)]
        return self.launch("run", self.write_recipe(name), *words, name=name)

    def test_adds_replicas_absent_at_start(self):
        launched = self.begin_without("few", 1, 2)
        run = launched.run
        launched.at_step(3)
        self.assertEqual(sorted(run.processes()), ["0.0", "1.0"])
        (absent,) = run.events("replicas_absent")
        self.assertEqual((absent["absent"], absent["replicas"]), ([1, 2], [0]))
        self.assertEqual(run.events("replica_left"), [])
        code, out, err = self.strait("status", run.path)
        self.assertIn("active replicas: 0", out)
        self.assertIn("replica 1 is absent: absent since the run began", out)
        # From the first step on the rows of absent replicas do not count.
        self.assertEqual({len(m["idle"]) for m in run.metrics()}, {2})
        alone = run.metrics()[0]["tokens"]
        before = run.processes()
        for replica, there in [(2, "0, 2"), (1, "0, 1, 2")]:
            code, out, err = self.strait("resume", run.path, "--replica", replica)
            self.assertEqual(code, 0, out + err + launched.output())
            self.assertIn(f"replica {replica} has joined; active replicas: {there}", out)
            self.train_on(launched)
        after = run.processes()
        self.assertEqual({name: after[name] for name in before}, before)
        self.assertEqual(len(after), 6)
        joined = run.events("replica_joined")[-1]["step"]
        tokens = [m["tokens"] for m in run.metrics()][joined:][:4]
        self.assertGreater(statistics.mean(tokens), 2.4 * alone)
        code, out, err = self.strait("status", run.path)
        self.assertIn("active replicas: 0, 1, 2", out)
        self.assertNotIn("is absent", out)
        # Whoever was added may leave and come back like any other.
        self.lose(launched, "1.2")
        self.rejoin(launched, 2)
        self.stop(launched)
        self.assertIn("starting without replica 1, 2; to add one: strait resume", launched.output())

        again = self.launch("resume", run.path, "--without", 0, name="few")
        again.at_training()
        self.train_on(again, 1)
        self.assertEqual(sorted(run.processes()), ["0.1", "0.2", "1.1", "1.2"])
        self.rejoin(again, 0)
        self.train_on(again, 1)
        self.stop(again)
        self.assertIn("the run resumes with no replica 0", again.output())

    def test_refuses_start_without_required_replicas(self):
        for settings, words, why in [
            ({"sync.on_loss": None}, [1], 'sync.on_loss is "stop"'), ({}, [3], "its replicas are 0 to 2"),
            ({}, [0, 1, 2], "at least one replica has to train"),
        ]:
            recipe = self.write_recipe("cannot", settings)
            without = [word for replica in words for word in ("--without", replica)]
            _, err = self.ended(10, "run", recipe, *without)
            self.assertIn("the run cannot start without replica", err)
            self.assertIn(why, err)
            self.assertEqual(len(err.strip().splitlines()), 1, err)
        self.assertFalse((self.home / "runs").exists())

    def test_refuses_impossible_rejoins(self):
        launched = self.start("words")
        launched.at_step(2)
        path = launched.run.path
        for replica, why in [(1, "it is active; active replicas: 0, 1, 2"), (3, "its replicas are 0 to 2")]:
            _, err = self.ended(10, "resume", path, "--replica", replica)
            self.assertIn(why, err)
            self.assertEqual(len(err.strip().splitlines()), 1, err)
        self.ok("stop", path, "--replica", 0)
        code, out, err = self.strait("status", path)
        self.assertIn("active replicas: 1, 2", out)
        self.assertRegex(out, r"replica 0 left at step \d+: on request")
        self.rejoin(launched, 0)
        code, out, err = self.strait("status", path)
        self.assertIn("active replicas: 0, 1, 2", out)
        self.assertNotIn("left at step", out)
        self.stop(launched)
        self.assertIn("no run is live in", self.ended(10, "resume", path, "--replica", 0)[1])


if __name__ == "__main__":
    runs.main()
