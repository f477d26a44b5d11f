"""Replicas on hosts of their own: losing a host evicts its replica and no other."""

import hosts
import replica_hosts


class Losses(replica_hosts.ReplicaHosts):
    @hosts.needs_namespaces
    def test_lost_host_evicts_its_replica_and_checkpoints_continue(self):
        launched = self.start("lossy", self.over_ssh(self.ENDLESS))
        run = launched.run
        launched.at_event("checkpoint")
        before = run.processes()
        self.hosts[1].power_off()
        launched.at_event("replica_left")
        (gone,) = run.events("replica_left")
        self.assertEqual((gone["replica"], gone["replicas"]), (1, [0, 2]))
        self.wait_for_download(launched, [0, 2], after=gone["step"])
        self.assertEqual(run.processes(), before)
        self.stopped(launched)
        last = run.outcome()["step"]
        self.assertEqual(self.shards(run, last), [0, 2])
        # All three come back where there are hosts for them.
        again = self.launch("resume", "runs/lossy", "--set", 'hosts.list=["h0", "h2"]', name="lossy")
        again.at_step(last + 1)
        self.assertEqual(sorted(run.processes()), ["0.0", "0.1", "0.2"])
        self.stopped(again)
        self.assertEqual(self.shards(run, run.outcome()["step"]), [0, 1, 2])

    def cut_off(self, host):
        """Blocks the paths between this host and the others; the launcher reaches all."""
        for other in self.hosts:
            if other is not host:
                host.refuse(other.address, other.address_6)
                other.refuse(host.address, host.address_6)

    @hosts.needs_namespaces
    def test_unreachable_host_evicts_only_its_replica(self):
        launched = self.start("apart", self.over_ssh(self.ENDLESS))
        run = launched.run
        launched.at_event("checkpoint")
        before = run.processes()
        self.cut_off(self.hosts[0])
        launched.at_event("replica_left")
        (gone,) = run.events("replica_left")
        self.assertEqual((gone["replica"], gone["replicas"]), (0, [1, 2]))
        launched.at_step(gone["step"] + 10)
        self.assertEqual(len(run.events("replica_left")), 1)
        self.assertEqual(run.processes(), before)
        self.stopped(launched)
        self.assertEqual(self.shards(run, run.outcome()["step"]), [1, 2])

    @hosts.needs_namespaces
    def test_broken_path_evicts_one_of_two_replicas(self):
        settings = {**self.ENDLESS, "pipeline.replicas": 2, "train.batch": 8}
        launched = self.start("pair", self.over_ssh(settings, ["h0", "h1"]))
        run = launched.run
        launched.at_event("checkpoint")
        self.cut_off(self.hosts[0])
        launched.at_event("replica_left")
        (gone,) = run.events("replica_left")
        self.assertEqual((gone["replica"], gone["replicas"]), (1, [0]))
        launched.at_step(gone["step"] + 10)
        self.stopped(launched)
        self.assertEqual(self.shards(run, run.outcome()["step"]), [0])


if __name__ == "__main__":
    hosts.main()
