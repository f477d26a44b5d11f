"""Replicas on hosts of their own rejoin while the others train: after a process was killed, and after a
whole host lost power, whose agent is started again. Their shards are downloaded again.
"""

import os
import signal

import hosts
import replica_changes
import replica_hosts


class Returns(replica_changes.ReplicaChanges, replica_hosts.ReplicaHosts):
    def kill_stage(self, host):
        (victim,) = (pid for pid, line in self.processes_on(host).items()
                     if "--agent" not in line and "strait-stage" in line)
        os.kill(victim, signal.SIGKILL)

    def power_on(self, host):
        host.start(self.site.ssh)
        hosts.wait_until_up(host)

    def rejoin(self, launched, replica, together):
        super().rejoin(launched, replica, together)
        self.train_on(launched)

    def fail_to_rejoin(self, launched, replica, host):
        _, err = self.ended(20, "resume", launched.run.path, "--replica", replica)
        self.assertIn(f"replica {replica} could not rejoin", err)
        self.assertIn(host, err)
        self.assertEqual(len(err.strip().splitlines()), 1, err)

    @hosts.needs_namespaces
    def test_lost_processes_and_hosts_rejoin(self):
        launched = self.start("back", self.over_ssh(self.ENDLESS))
        run = launched.run
        launched.at_event("checkpoint")
        before = run.processes()
        self.assertEqual(self.lose_replica(launched, self.hosts[1].power_off), 1)
        self.assertEqual(self.lose_replica(launched, lambda: self.kill_stage(self.hosts[2])), 2)

        self.fail_to_rejoin(launched, 1, "h1")
        self.train_on(launched)

        # Its host was there all the time, and another one that is lost is none of its business.
        self.rejoin(launched, 2, "0, 2")
        self.wait_for_download(launched, [0, 2])

        self.power_on(self.hosts[1])
        self.rejoin(launched, 1, "0, 1, 2")
        self.wait_for_download(launched, [0, 1, 2])
        after = run.processes()
        self.assertEqual(after["0.0"], before["0.0"])
        self.assertEqual(run.status()["replicas"], [0, 1, 2])

        # And once more, while another one is lost.
        self.assertEqual(self.lose_replica(launched, self.hosts[2].power_off), 2)
        self.assertEqual(self.lose_replica(launched, self.hosts[1].power_off), 1)
        self.fail_to_rejoin(launched, 2, "h2")
        self.power_on(self.hosts[1])
        self.rejoin(launched, 1, "0, 1")
        self.wait_for_download(launched, [0, 1])
        self.stop(launched)
        self.assertEqual(run.processes()["0.0"], before["0.0"])

    @hosts.needs_namespaces
    def test_run_starts_without_a_host_that_joins_later(self):
        self.hosts[1].power_off()
        recipe = self.write_recipe("few", self.over_ssh(self.ENDLESS))
        code, out, err = self.strait("run", recipe)
        self.assertNotEqual(code, 0, out + err)
        self.assertIn("h1", err)
        self.assertIn("; to start without that replica and add it later: --without 1", err)

        launched = self.launch("run", recipe, "--without", 1, name="few")
        run = launched.run
        launched.at_event("checkpoint")
        self.assertEqual(sorted(run.processes()), ["0.0", "0.2"])
        self.assertEqual(run.status()["replicas"], [0, 2])
        self.wait_for_download(launched, [0, 2])
        before = run.processes()
        self.power_on(self.hosts[1])
        self.assertEqual(self.processes_on(self.hosts[1]), {})
        self.rejoin(launched, 1, "0, 1, 2")
        self.wait_for_download(launched, [0, 1, 2])
        self.assertEqual({name: run.processes()[name] for name in before}, before)
        # It leaves and comes like one that was there from the start.
        self.assertEqual(self.lose_replica(launched, lambda: self.kill_stage(self.hosts[1])), 1)
        self.rejoin(launched, 1, "0, 1, 2")
        self.stop(launched)

    @hosts.needs_namespaces
    def test_joining_host_gets_frozen_weights(self):
        self.write_model("base", weights=True)
        adapters = {"model.path": "base", "model.weights": "load", "model.lora.rank": 2, "model.lora.targets": ["c_attn"]}
        self.hosts[1].power_off()
        recipe = self.write_recipe("late", self.over_ssh({**self.ENDLESS, **adapters}))
        launched = self.launch("run", recipe, "--without", 1, name="late")
        launched.at_event("checkpoint")
        self.power_on(self.hosts[1])
        self.rejoin(launched, 1, "0, 1, 2")
        self.stop(launched)

    @hosts.needs_namespaces
    def test_restart_leaves_out_replicas_whose_hosts_are_gone(self):
        def lose_last_replica(launched):
            restarts, starts = len(launched.run.events("restart")), len(launched.run.events("training"))
            self.kill_stage(self.hosts[0])
            launched.wait_for("training to go on", lambda: len(launched.run.events("training")) > starts, 120)
            self.assertEqual(len(launched.run.events("restart")), restarts + 1)
            self.train_on(launched)
            return launched.run.events("restart")[-1]

        self.hosts[1].power_off()
        recipe = self.write_recipe("alone", self.over_ssh({**self.ENDLESS, "hosts.restart": 5}))
        launched = self.launch("run", recipe, "--without", 1, name="alone")
        launched.at_event("checkpoint")
        self.assertEqual(self.lose_replica(launched, self.hosts[2].power_off), 2)
        self.wait_for_download(launched, [0])
        restart = lose_last_replica(launched)
        self.assertEqual(restart["moves"][1], "replica 2 is left out until its host answers")
        self.assertEqual(launched.run.status()["replicas"], [0])
        # The user has left replica 1 out, and nothing but the user brings it back.
        self.power_on(self.hosts[1])
        self.power_on(self.hosts[2])
        self.assertEqual(lose_last_replica(launched)["moves"], [])
        self.assertEqual(launched.run.status()["replicas"], [0, 2])
        self.rejoin(launched, 1, "0, 1, 2")
        self.stop(launched)

    @hosts.needs_namespaces
    def test_host_that_comes_back_forgets_checkpoints_of_steps_given_up(self):
        launched = self.start("back", self.over_ssh(self.ENDLESS))
        launched.at_event("checkpoint")
        self.wait_for_download(launched, [0, 1, 2])
        self.assertEqual(self.lose_replica(launched, self.hosts[1].power_off), 1)
        # As after a resume from an older step while the host was off, of any number of steps.
        manifest = next(self.hosts[1].home.rglob("checkpoints/step-*/manifest.json"))
        newest = launched.run.checkpoints()[-1]
        for step in range(newest + 5, newest + 5000, 5):
            folder = manifest.parents[1] / f"step-{step}"
            folder.mkdir(exist_ok=True)
            (folder / "manifest.json").write_bytes(manifest.read_bytes())
        self.power_on(self.hosts[1])
        self.rejoin(launched, 1, "0, 1, 2")
        self.wait_for_download(launched, [0, 1, 2])
        missed = [event for event in launched.run.events("stage_event") if "complete already" in event["text"]]
        self.assertEqual(missed, [])
        self.stop(launched)

    @hosts.needs_namespaces
    def test_killed_agent_is_restarted(self):
        launched = self.start("kept", self.over_ssh(self.ENDLESS))
        launched.at_event("checkpoint")

        def kill_agent():
            for pid, line in self.processes_on(self.hosts[2]).items():
                if "--agent" in line:
                    os.kill(pid, signal.SIGKILL)

        self.assertEqual(self.lose_replica(launched, kill_agent), 2)
        self.rejoin(launched, 2, "0, 1, 2")
        self.wait_for_download(launched, [0, 1, 2])
        self.stop(launched)

    @hosts.needs_namespaces
    def test_links_of_a_rejoining_replica_are_relayed(self):
        one, other = self.hosts[1:]

        def part(host, from_host):
            host.refuse(from_host.address, from_host.address_6)

        part(one, other)
        part(other, one)
        launched = self.start("detour", self.over_ssh(self.ENDLESS))
        launched.at_event("checkpoint")
        # Its host still keeps its end of the relayed link.
        self.assertEqual(self.lose_replica(launched, lambda: self.kill_stage(other)), 2)
        self.rejoin(launched, 2, "0, 1, 2")
        # Of this one everything is new.
        self.assertEqual(self.lose_replica(launched, one.power_off), 1)
        self.power_on(one)
        part(one, other)
        self.rejoin(launched, 1, "0, 1, 2")
        events = [line["text"] for line in launched.run.events("stage_event") if line["name"] == "relayed"]
        self.assertEqual(len(events), 2, events)
        self.assertTrue(all("RELAYED: h1 and h2 cannot reach" in text or
                            "RELAYED: h2 and h1 cannot reach" in text for text in events), events)
        self.wait_for_download(launched, [0, 1, 2])
        self.stop(launched)


if __name__ == "__main__":
    hosts.main()
