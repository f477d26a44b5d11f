"""A run that loses a process restarts by itself (hosts.restart), to the bits of a run that lost none;
what comes back at every start ends it with the root cause."""

import math
import os
import random
import signal
import subprocess
import time

import runs

SOON = 10  # seconds within which every process must have gone
FAULTS = int(os.environ.get("STRAIT_FAULTS", 30))
FLAPS = int(os.environ.get("STRAIT_FLAPS", 1000))
SEED = int(os.environ.get("STRAIT_SEED", 1))


class Restarts(runs.RunCase):
    # More steps than are made while `strait status` looks.
    SUPERVISED = {"pipeline.stages": 3, "train.steps": 300, "checkpoint.every": 20, "hosts.restart": 2}

    def kill(self, run, stage, launched):
        """Kills a stage, and returns the seconds until training went on."""
        starts = len(run.events("training"))
        begun = time.time()
        os.kill(run.stages()[stage], signal.SIGKILL)
        launched.wait_for("training to go on", lambda: len(run.events("training")) > starts)
        return run.events("training")[-1]["time"] - begun

    def test_lost_processes_restart_to_same_bits(self):
        quiet = self.train("quiet", {**self.SUPERVISED, "hosts.restart": None})
        self.assertEqual([e["text"] for e in quiet.events("stage_event") if e["name"] == "slow"], [])
        launched = self.start("loud", self.SUPERVISED)
        run = launched.run
        launched.at_step(2)  # no checkpoint yet
        seconds = [self.kill(run, 1, launched)]
        launched.at_checkpoint(20)
        seconds.append(self.kill(run, 0, launched))
        launched.at_checkpoint(60)
        self.assertIn("restarts by itself: 2; the last to generation 3 from step", self.ok("status", "runs/loud"))
        seconds.append(self.kill(run, 2, launched))
        self.assertEqual(launched.end(), 0, launched.output())
        print("from the kill to training again: " + ", ".join(f"{s:.2f} s" for s in seconds))
        self.assert_same_bits(quiet.learnt(300), run.learnt(300))
        restarts = run.events("restart")
        self.assertEqual([one["generation"] for one in restarts], [2, 3, 4])
        self.assertEqual([one["number"] for one in restarts], [1, 1, 1])
        self.assertEqual(restarts[0]["from"], 0)
        self.assertGreaterEqual(restarts[1]["from"], 20)
        self.assertGreaterEqual(restarts[2]["from"], 60)
        for restart, stage in zip(restarts, (1, 0, 2)):
            self.assertRegex(restart["cause"], rf"^stage {stage}\.0 .*signal 9")
        output = launched.output()
        self.assertIn("restart 1 of 2, generation 2: from the beginning", output)
        self.assertIn(f"going on from the checkpoint of step {restarts[2]['from']}", output)
        self.assertIn("generation 4 from step", (run.path / "report.html").read_text())
        self.assertEqual(run.status()["restarts"]["count"], 3)

    def test_status_between_a_loss_and_its_restart(self):
        launched = self.start("loud", {**self.SUPERVISED, "checkpoint.every": 0})
        run = launched.run
        launched.at_step(2)
        self.kill(run, 1, launched)
        os.kill(run.stages()[1], signal.SIGKILL)  # the second in a row: its restart is put off by a second
        launched.wait_for("the state between", lambda: run.status()["state"] == "restarting")
        self.assertEqual(len(run.events("restart")), 1)
        self.assertIn(": restarting (process", self.ok("status", "runs/loud"))
        self.assertEqual(launched.end(), 0, launched.output())
        self.assertEqual(run.status()["restarts"]["count"], 2)

    def test_lost_processes_restart_from_memory_to_same_bits(self):
        """No checkpoint on disk but the last: activation caches, moments and weights are in memory only."""
        settings = {**self.SUPERVISED, "checkpoint.every": 0, "checkpoint.memory_every": 5,
                    "codec.forward": "delta", "codec.backward": "fixed"}
        quiet = self.train("quiet", {**settings, "hosts.restart": None, "checkpoint.memory_every": None})
        launched = self.start("loud", settings)
        run = launched.run
        launched.at_step(2)
        in_memory = lambda: (run.status().get("memory") or {"step": 0})["step"]
        for stage, step in ((1, 10), (0, 40)):
            launched.wait_for(f"step {step} in memory", lambda: in_memory() >= step)
            self.assertEqual(run.status()["memory"]["place"], "the launcher")
            self.assertIn("in memory of the launcher", self.strait("status", "runs/loud")[1])
            self.kill(run, stage, launched)
        self.assertEqual([folder.stat().st_mode & 0o777 for folder in run.memory_directories()], [0o700])
        self.assertEqual(launched.end(), 0, launched.output())
        self.assertEqual(run.memory_directories(), [])
        self.assert_same_bits(quiet.learnt(300), run.learnt(300))
        starts = [one["from"] for one in run.events("restart")]
        self.assertTrue(starts[0] >= 10 and starts[1] >= 40 and all(one % 5 == 0 for one in starts), starts)
        texts = [e["text"] for e in run.events("stage_event")]
        self.assertIn(f"the checkpoint of step {starts[0]} was in memory only; it is on this machine's disk now", texts)
        self.assertEqual([t for t in texts if "cannot be used" in t or "caches" in t], [])

    def test_memory_of_killed_launcher_is_freed_by_next_start(self):
        settings = {"checkpoint.every": 0, "checkpoint.memory_every": 5}
        launched = self.start("killed", {**settings, "train.steps": 100_000})
        run = launched.run
        launched.at_step(2)
        launched.wait_for("a checkpoint in memory", lambda: run.status().get("memory"))
        launched.signal(signal.SIGKILL)
        self.launcher_was_killed = True
        launched.process.wait()
        self.wait_for_no_processes()
        self.assertEqual(len(run.memory_directories()), 1)
        self.train("next", {**settings, "train.steps": 20})
        self.assertEqual(run.memory_directories(), [])

    def test_too_little_shared_memory_is_named_once(self):
        """As in containers. The run has no checkpoints in memory then, and is otherwise the same."""
        settings = {"train.steps": 40, "checkpoint.every": 0}
        quiet = self.train("quiet", settings)
        small = self.home / "small"
        small.write_text("#!/bin/sh\nexec unshare -m sh -c 'mount -t tmpfs -o size=64k none /dev/shm && exec \"$0\" \"$@\"' "
                         f"{self.program} \"$@\"\n")
        small.chmod(0o700)
        if subprocess.run([small, "--version"], capture_output=True).returncode != 0:
            self.skipTest("cannot mount here")
        self.program = small
        run = self.train("small", {**settings, "checkpoint.memory_every": 5})
        self.assert_same_bits(quiet.learnt(40), run.learnt(40))
        texts = [e["text"] for e in run.events("stage_event") if e["name"] == "not_in_memory"]
        self.assertEqual(len(texts), 1, texts)
        self.assertIn("no room to write /dev/shm/strait-", texts[0])
        self.assertNotIn("memory", run.status())

    @runs.campaign
    def test_random_kills_pauses_and_cuts_change_no_bits(self):
        """Two of three SIGKILL, the others SIGSTOP for a moment; on links that break every 3 s. Checkpoints on
        disk, and twice as many in memory."""
        # Steps behind the last fault, too: a run may make many while a test looks.
        settings = {**self.SUPERVISED, "train.steps": 20 * FAULTS + 200, "checkpoint.every": 10}
        undisturbed = self.start("quiet", {**settings, "hosts.restart": None})
        self.assertEqual(undisturbed.end(600 + 2 * FAULTS), 0, undisturbed.output())
        quiet = undisturbed.run
        flapping = {"hosts.simulate.cut_every": "3s", "hosts.simulate.cut_for": "100ms"}
        launched = self.start("loud", {**settings, **flapping, "checkpoint.memory_every": 5})
        run, choose, seconds = launched.run, random.Random(SEED), []
        for fault in range(FAULTS):
            launched.at_step(20 * fault + choose.randint(1, 19))
            stage = choose.randrange(3)
            if choose.random() < 2 / 3:
                seconds.append(self.kill(run, stage, launched))
                continue
            pid, until = run.stages()[stage], time.monotonic() + choose.uniform(0.05, 2)
            os.kill(pid, signal.SIGSTOP)
            launched.wait_for("the end of a pause", lambda: time.monotonic() > until)
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(launched.end(600), 0, launched.output())
        last = settings["train.steps"]
        self.assert_same_bits(quiet.learnt(last), run.learnt(last))
        self.assertEqual(len(run.events("restart")), len(seconds))
        seconds.sort()
        print(f"seed {SEED}: {len(seconds)} kills, {FAULTS - len(seconds)} pauses; from a kill to training again: "
              f"median {seconds[len(seconds) // 2]:.2f} s, longest {seconds[-1]:.2f} s")

    @runs.campaign
    def test_flapping_links_of_two_replicas_change_no_bits(self):
        """Links break for 0.1 to 5 s, again and again; their number follows from the time that a run took."""
        base = {"pipeline.replicas": 2, "hosts.hold": 60}
        links = 2 * 2 + 1 + 2  # boundaries and ties, consensus, sync
        steps_a_second = 40 / self.training_seconds(self.train("first", {**base, "train.steps": 40}))
        for broken in (0.1, 0.5, 2, 5):
            flaps, runs_made, whole = 0, 0, max(0.5, broken / 2)
            # Three cuts at least.
            steps = max(40, math.ceil(3 * whole * steps_a_second))
            settings = {**base, "train.steps": steps}
            quiet = self.train(f"quiet-{broken}", settings)
            while flaps < FLAPS / 4:
                runs_made += 1
                flapping = {"hosts.simulate.cut_every": f"{whole}s", "hosts.simulate.cut_for": f"{broken}s"}
                launched = self.start(f"flapping-{broken}-{runs_made}", {**settings, **flapping})
                self.assertEqual(launched.end(600), 0, launched.output())
                run = launched.run
                self.assert_same_bits(quiet.learnt(steps), run.learnt(steps))
                self.assertEqual(run.events("restart"), [])
                seen = int(self.training_seconds(run) / (whole + broken)) * links
                self.assertGreater(seen, 0, f"{steps} steps were over before links broke")
                flaps += seen
            print(f"broken for {broken} s: {flaps} flaps in {runs_made} runs", flush=True)

    @staticmethod
    def training_seconds(run):
        """To the end of a run."""
        return run.events()[-1]["time"] - run.events("training")[0]["time"]

    def test_failure_of_every_start_ends_run_with_first_cause(self):
        launched = self.start("doomed", self.SUPERVISED)
        run = launched.run
        for generation, stage in ((1, 1), (2, 0), (3, 2)):
            launched.wait_for(f"generation {generation}",
                              lambda: len(run.events("started")) == generation and stage in run.stages())
            os.kill(run.stages()[stage], signal.SIGKILL)
        self.assertEqual(launched.end(), 20, launched.output())
        self.wait_for_no_processes(1)
        self.assertEqual(len(run.events("restart")), 2)
        for outcome in (run.outcome(), run.status()["outcome"]):
            self.assertEqual(outcome["culprit"], "1.0", outcome)
            self.assertEqual(outcome["code"], 20)
        self.assertEqual(run.status()["state"], "ended")
        self.assertIn("no further restart: 2 restarts", launched.output())

    def test_stop_and_killed_launcher_restart_nothing(self):
        launched = self.start("stopped", {**self.SUPERVISED, "train.steps": 100_000})
        launched.at_step(2)
        launched.end_by(signal.SIGTERM, 0)
        again = self.launch("resume", "runs/stopped", name="stopped")
        again.at_training()
        again.signal(signal.SIGTERM)
        again.signal(signal.SIGTERM)  # at once
        self.assertIn(again.end(), (0, 130), again.output())
        self.assertEqual(again.run.events("restart"), [])


if __name__ == "__main__":
    runs.main()
