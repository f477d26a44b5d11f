"""Runs that continue after losing a replica: the other processes are not restarted, their replicas
stay equal, and events record the loss.
"""

import math
import os
import random
import signal
import time

import runs

# More than any run here makes: each is stopped when the test has seen what it waits for.
ENDLESS = 100_000
METHODS = {
    "allreduce": {}, "cocktail": {"sync.random": 0.3, "sync.top": 0.5}, "diloco": {"sync.every": 4},
    "powersgd": {"sync.rank": 2},
}


class Losses(runs.RunCase):
    SETTINGS = {
        **runs.RunCase.SETTINGS, "pipeline.stages": 2, "pipeline.replicas": 3, "sync.on_loss": "continue",
        "data.eval": "train.jsonl", "train.eval_every": 10, "train.batch": 12, "train.micro_batch": 2,
        "train.steps": ENDLESS, "checkpoint.every": 10,
    }

    def lose(self, name, victim, step, settings):
        """Kills the process `victim` after that step. The run continues without its replica,
        evaluates, is stopped and ends with code 0."""
        launched = self.start(name, settings)
        launched.at_step(step)
        before = launched.run.processes()
        os.kill(before[victim], signal.SIGKILL)
        launched.at_event("replica_left")
        left = {name: pid for name, pid in before.items() if name[-1] != victim[-1]}
        # The same processes, and no other ones.
        self.assertEqual(launched.run.processes(), before)
        launched.at_step(launched.run.events("replica_left")[0]["step"] + 15)
        launched.end_by(signal.SIGINT, 0)
        self.wait_for_no_processes(1)
        self.assertEqual(launched.run.processes(), before)
        self.assertEqual(len(left), 4)
        return launched

    def assert_training_continued(self, launched, victim):
        run = launched.run
        (event,) = run.events("replica_left")
        others = [replica for replica in range(3) if replica != int(victim[-1])]
        self.assertEqual(event["replica"], int(victim[-1]))
        self.assertEqual(event["replicas"], others)
        self.assertIn("signal 9", event["text"])
        self.assertEqual(run.status()["replicas"], others)
        self.assertIn(f"replica {victim[-1]} left at step", launched.output())
        lines = run.metrics()
        steps = run.outcome()["step"]
        self.assertEqual([m["step"] for m in lines], list(range(1, steps + 1)))
        for line in lines:
            self.assertTrue(math.isfinite(line["loss"]), line)
        # Rows of a replica that left are not counted: two thirds of them, give or take what documents weigh.
        tokens = [m["tokens"] for m in lines]
        self.assertLess(sum(tokens[-10:]) / 10, 0.9 * max(tokens[:3]))
        self.assertEqual(run.checkpoints()[-1], steps)
        # Evaluations see all of their rows, whoever is left.
        tokens = {event["tokens"] for event in run.events("evaluated")}
        self.assertEqual(len(tokens), 1, tokens)
        self.assertEqual(run.outcome()["code"], 0)

    def test_killed_stage_evicts_its_replica(self):
        seed = int(os.environ.get("STRAIT_TEST_SEED", time.time_ns() % 1_000_000))
        print(f"seed {seed}")
        chance = random.Random(seed)
        for method, settings in METHODS.items():
            with self.subTest(method=method, seed=seed):
                victim = chance.choice(["0.0", "1.0", "0.1", "1.1", "0.2", "1.2"])
                launched = self.lose(method, victim, chance.randrange(3, 25), {"sync.method": method, **settings})
                self.assert_training_continued(launched, victim)

    def test_resumes_all_replicas_from_common_model(self):
        launched = self.lose("left", "1.0", 12, {"sync.method": "cocktail", **METHODS["cocktail"]})
        self.assert_training_continued(launched, "1.0")
        run = launched.run
        *_, step, last = run.checkpoints()
        self.rewind_run(run, step)
        again = self.launch("resume", "runs/left", name="left")
        again.at_step(last)
        again.end_by(signal.SIGINT, 0)
        self.assertRegex(again.output(), f"every replica starts from the agreed model of step {step}.*"
                                         "3 instead of 3, of which 1, 2 were left")
        self.assertEqual({name[-1] for name in run.processes()}, {"0", "1", "2"})
        self.assertGreaterEqual(run.checkpoints()[-1], last)

    def test_loss_of_last_replica_ends_run(self):
        launched = self.start("alone", {"sync.method": "cocktail"})
        launched.at_step(3)
        pids = launched.run.processes()
        for count, victim in enumerate(["0.1", "1.0"], start=1):
            os.kill(pids[victim], signal.SIGKILL)
            launched.wait_for("a replica to leave", lambda: len(launched.run.events("replica_left")) == count)
            step = launched.run.metrics()[-1]["step"]
            launched.at_step(step + 3)
        os.kill(pids["0.2"], signal.SIGKILL)
        self.assertEqual(launched.end(10), 20, launched.output())
        self.assertEqual(launched.run.outcome()["culprit"], "0.2")

    def test_replica_leaves_on_request(self):
        launched = self.start("asked", {"sync.method": "cocktail"})
        launched.at_step(3)
        pids = launched.run.processes()
        self.assertIn("replica 1 has left; active replicas: 0, 2", self.ok("stop", "runs/asked", "--replica", "1"))
        launched.at_step(launched.run.metrics()[-1]["step"] + 3)
        self.assertEqual(launched.run.processes(), pids)
        for words, why in [(["--replica", "1"], "active replicas: 0, 2"),
                           (["--replica", "7"], "active replicas: 0, 2")]:
            self.assertIn(why, self.ended(10, "stop", "runs/asked", *words)[1])
        self.ok("stop", "runs/asked")
        self.assertEqual(launched.end(), 0, launched.output())
        (event,) = launched.run.events("replica_left")
        self.assertEqual(event["text"], "on request")

    def test_the_only_replica_is_told_how_its_run_ends(self):
        launched = self.start("single", {"pipeline.replicas": 1, "sync.on_loss": None, "sync.method": None})
        launched.at_step(3)
        self.assertIn("it is the last one; end the run with: strait stop runs/single",
                      self.ended(10, "stop", "runs/single", "--replica", "0")[1])
        self.ok("stop", "runs/single")
        self.assertEqual(launched.end(), 0, launched.output())

    def test_lost_replica_ends_run_by_default(self):
        launched = self.start("stops", {"sync.on_loss": None})
        launched.at_step(3)
        os.kill(launched.run.processes()["1.1"], signal.SIGKILL)
        self.assertEqual(launched.end(10), 20, launched.output())
        self.assertEqual(launched.run.events("replica_left"), [])

    def test_refuses_methods_that_need_all_replicas(self):
        for method, words in {"noloco": "no consensus round covers", "onebit_adam": "after the consensus round"}.items():
            with self.subTest(method=method):
                _, err = self.ended(10, "plan", self.write_recipe("bad", {"sync.method": method}))
                place = r"\(bad.toml:\d+:\d+\)"
                self.assertRegex(err, f'on_loss is "continue" {place}, but sync.method is "{method}" {place}, '
                                      f"which cannot continue.*{words}")
                self.assertEqual(len(err.strip().splitlines()), 1, err)


if __name__ == "__main__":
    runs.main()
