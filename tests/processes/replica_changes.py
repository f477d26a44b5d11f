"""Replicas that leave a run and rejoin it: what tests here and over hosts do with them."""


class ReplicaChanges:
    """Of a RunCase."""

    def lose_replica(self, launched, end):
        """Calls end(), which ends a replica, and returns the number of the evicted replica."""
        count = len(launched.run.events("replica_left"))
        end()
        launched.wait_for("the replica to leave", lambda: len(launched.run.events("replica_left")) > count)
        return launched.run.events("replica_left")[-1]["replica"]

    def rejoin(self, launched, replica, together="0, 1, 2"):
        code, out, err = self.strait("resume", launched.run.path, "--replica", replica)
        self.assertEqual(code, 0, out + err + launched.output())
        self.assertIn(f"replica {replica} has joined; active replicas: {together}", out)

    def train_on(self, launched, steps=5):
        launched.at_step(launched.run.metrics()[-1]["step"] + steps)

    def stop(self, launched):
        code, out, err = self.strait("stop", launched.run.path)
        self.assertEqual(code, 0, out + err + launched.output())
        self.assertEqual(launched.end(), 0, launched.output())
        left = [p.name for p in launched.run.path.iterdir() if p.name.startswith(("leave-", "return-"))]
        self.assertEqual(left, [])
