"""A run over hosts that loses some of them goes on by itself: on a spare host, then with fewer stages,
to the bits of a run on one machine."""

import os
import signal
import time

import hosts


class Restart(hosts.HostsCase):
    COUNT = 4
    SUPERVISED = {"pipeline.stages": 3, "train.steps": 250, "checkpoint.every": 5, "hosts.restart": 3}
    # One process learns what any number of stages learns.
    ALONE = {"pipeline.stages": 1, "hosts.restart": None}

    def power_off(self, launched, number):
        """Seconds from the power cut until training goes on, and from the moment it was noticed."""
        run = launched.run
        starts, ends = len(run.events("training")), len(run.events("ended"))
        begun = time.time()
        self.hosts[number].power_off()
        launched.wait_for("training to go on", lambda: len(run.events("training")) > starts, 120)
        training = run.events("training")[-1]["time"]
        return training - begun, training - run.events("ended")[ends]["time"]

    def places(self, run):
        return [one["host"] for one in run.plan()["processes"]]

    def whole_checkpoint_here(self, launched, step):
        """Of at least this step: what only a lost host has is lost with it."""
        complete = lambda folder: len([*folder.glob("stage-*.safetensors")]) >= 2 * len(self.places(launched.run))
        folders = lambda: launched.run.path.glob("checkpoints/step-*")
        launched.wait_for(
            f"a whole checkpoint of step {step}",
            lambda: any(int(f.name.split("-")[1]) >= step and complete(f) for f in folders() if f.name[5:].isdigit()),
        )

    def lose_another_during_restart(self, launched):
        run = launched.run
        starts, restarts = len(run.events("training")), len(run.events("restart"))
        begun = time.time()
        self.hosts[2].power_off()
        launched.wait_for("the restart", lambda: len(run.events("restart")) > restarts, 120)
        self.hosts[3].power_off()
        launched.wait_for("training to go on", lambda: len(run.events("training")) > starts, 180)
        print("to one host, another one lost during the restart: %.1f s" % (run.events("training")[-1]["time"] - begun))
        self.assertEqual(self.places(run), ["h0"])

    @hosts.needs_namespaces
    def test_lost_hosts_are_replaced_then_left_out(self):
        local = self.train("local", {**self.SUPERVISED, **self.ALONE})
        settings = self.over_ssh({**self.SUPERVISED, "hosts.spare": ["h3"]}, ["h0", "h1", "h2"])
        launched = self.start("moved", settings)
        run = launched.run
        self.whole_checkpoint_here(launched, 5)
        print("to a spare host: %.1f s, of which %.1f s since it was noticed" % self.power_off(launched, 1))
        self.assertEqual(self.places(run), ["h0", "h3", "h2"])
        first = run.events("restart")[-1]
        self.assertIn("h1", first["cause"])
        self.assertIn("host h3 takes the place of h1", first["moves"][0])
        self.whole_checkpoint_here(launched, first["from"] + 5)
        self.lose_another_during_restart(launched)
        second, third = run.events("restart")[-2:]
        self.assertIn("host h2 is left out", second["moves"][0])
        self.assertEqual(second["moves"][1], "2 stages instead of 3")
        self.assertGreater(second["from"], first["from"])
        self.assertIn("host h3 is left out", third["moves"][0])
        self.assertEqual((third["moves"][1], third["from"]), ("1 stage instead of 2", second["from"]))
        self.assertEqual(launched.end(180), 0, launched.output())
        self.assert_same_bits(local.learnt(250), run.learnt(250))
        self.assertRegex((run.path / "recipe.toml").read_text(), r'spare = \["h1", *"h2", *"h3"\]')

    @hosts.needs_namespaces
    def test_damaged_copy_is_fetched_again(self):
        """The only checkpoint: damaged on the launcher's machine, whole on the host that wrote it."""
        settings = {**self.SUPERVISED, "pipeline.stages": 2, "train.steps": 100_000, "checkpoint.every": 400}
        launched = self.start("flipped", self.over_ssh(settings, ["h0", "h1"]))
        run = launched.run
        self.whole_checkpoint_here(launched, 400)
        (step,) = run.checkpoints()
        shard = run.path / "checkpoints" / f"step-{step}" / "stage-1.replica-0.weights.safetensors"
        good = shard.read_bytes()
        shard.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        (victim,) = (pid for pid, line in self.processes_on(self.hosts[1]).items()
                     if "--agent" not in line and "strait-stage" in line)
        os.kill(victim, signal.SIGKILL)
        launched.wait_for("training to go on", lambda: len(run.events("training")) > 1, 120)
        self.assertEqual(run.events("restart")[-1]["from"], step)
        self.assertEqual(shard.read_bytes(), good)
        self.assertRegex(launched.output(), f"{shard.name}: tensor .* is damaged")
        code, out, err = self.strait("stop", run.path)
        self.assertEqual(code, 0, out + err + launched.output())
        self.assertEqual(launched.end(), 0, launched.output())

    def in_memory(self, launched, step):
        """At least this step is on two hosts each."""
        memory = lambda: launched.run.status().get("memory") or {"step": 0, "place": ""}
        launched.wait_for(f"step {step} in memory",
                          lambda: memory()["step"] >= step and memory()["place"].endswith("with a copy on a neighbour"))

    @hosts.needs_namespaces
    def test_lost_host_costs_one_interval_without_disks(self):
        """Without checkpoints on disk: the neighbour of a lost host has its part. When both are lost, what is on
        the launcher's disk is next."""
        settings = {**self.SUPERVISED, "checkpoint.every": 0, "train.steps": 150}
        local = self.train("local", {**settings, **self.ALONE})
        settings = {**settings, "checkpoint.memory_every": 5, "hosts.spare": ["h3"]}
        launched = self.start("twins", self.over_ssh(settings, ["h0", "h1", "h2"]))
        run = launched.run
        launched.at_step(2)
        self.in_memory(launched, 10)
        print("from memory, to a spare host: %.1f s, of which %.1f s since it was noticed" % self.power_off(launched, 1))
        first = run.events("restart")[-1]
        self.assertGreaterEqual(first["from"], 10)
        self.assertEqual(run.checkpoints(), [first["from"]])
        self.in_memory(launched, first["from"] + 10)
        # h2 holds the copy of h3, and h0 that of h2.
        self.hosts[3].power_off()
        self.power_off(launched, 2)
        second = run.events("restart")[-1]
        self.assertEqual(second["from"], first["from"])
        self.assertEqual(self.places(run), ["h0"])
        texts = [event["text"] for event in run.events("stage_event")]
        self.assertTrue(any("in memory cannot be used: the part of stage" in text for text in texts), texts)
        self.assertEqual(launched.end(180), 0, launched.output())
        self.assertEqual(run.memory_directories(), [])
        self.assert_same_bits(local.learnt(150), run.learnt(150))


if __name__ == "__main__":
    hosts.main()
