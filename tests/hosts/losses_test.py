"""Replicas on hosts of their own: a host that loses power takes its replica along, and nobody else."""

import signal

import hosts
import replica_hosts


class Losses(replica_hosts.ReplicaHosts):
    def stopped(self, launched):
        launched.signal(signal.SIGINT)
        self.assertEqual(launched.end(), 0, launched.output())

    @hosts.needs_namespaces
    def test_a_lost_host_takes_its_replica_along_and_checkpoints_come_home_without_it(self):
        launched = self.start("lossy", self.over_ssh(self.ENDLESS))
        run = launched.run
        launched.at_event("checkpoint")
        before = run.processes()
        self.hosts[1].power_off()
        launched.at_event("replica_left")
        (gone,) = run.events("replica_left")
        self.assertEqual((gone["replica"], gone["replicas"]), (1, [0, 2]))
        later = lambda: [step for step in run.checkpoints() if step > gone["step"]]
        launched.wait_for(
            "a checkpoint of those who are left to come home",
            lambda: any(self.shards(run, step) == [0, 2] for step in later()),
        )
        self.assertEqual(run.processes(), before)
        self.stopped(launched)
        last = run.outcome()["step"]
        self.assertEqual(self.shards(run, last), [0, 2])
        # All three come back where there are hosts for them.
        again = self.launch("resume", "runs/lossy", "--set", 'hosts.list=["h0", "h2"]', name="lossy")
        again.wait_for("training to go on", lambda: len(run.events("training")) == 2)
        again.at_step(last + 1)
        self.assertEqual(sorted(run.processes()), ["0.0", "0.1", "0.2"])
        self.stopped(again)
        self.assertEqual(self.shards(run, run.outcome()["step"]), [0, 1, 2])


if __name__ == "__main__":
    hosts.main()
