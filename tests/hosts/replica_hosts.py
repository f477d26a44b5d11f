"""Three replicas, each on a host of its own, that train until they are stopped. Not a test itself."""

import hosts


class ReplicaHosts(hosts.HostsCase):
    COUNT = 3
    ENDLESS = {
        "pipeline.stages": 1, "pipeline.replicas": 3, "sync.method": "cocktail", "sync.random": 0.3,
        "sync.on_loss": "continue", "train.batch": 12, "train.steps": 100_000, "checkpoint.every": 5,
    }

    def shards(self, run, step):
        """Replicas whose shards of this checkpoint are on this machine."""
        found = (run.path / "checkpoints" / f"step-{step}").glob("stage-0.replica-?.safetensors")
        return sorted(int(path.name[len("stage-0.replica-")]) for path in found)

    def wait_for_download(self, launched, replicas, after=None):
        """Waits until a checkpoint with the shards of these replicas is downloaded, of a step after this one (the
        newest that is known)."""
        run = launched.run
        known = run.checkpoints()[-1] if after is None else after
        launched.wait_for(f"a checkpoint of {replicas} to come home",
                          lambda: any(self.shards(run, step) == replicas for step in run.checkpoints() if step > known))
