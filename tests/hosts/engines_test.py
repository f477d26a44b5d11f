"""The same command on every node, as engines start it: `strait run recipe.toml --rendezvous`, to the
bits of a run on one machine. What a node is comes from the engine's own variables, and whatever
starts its process again has it back in the run."""

import os
import pathlib
import shutil
import signal
import sys
import unittest

import hosts
import runs

SECRET = "5a" * 32
SETTINGS = {
    "pipeline.replicas": 2, "train.steps": 150, "checkpoint.every": 5, "checkpoint.home": "all",
    "hosts.hold": 5, "hosts.join_wait": 60,
}
TORCHRUN = pathlib.Path(sys.executable).with_name("torchrun")


class Node(runs.Launched):
    """A command on a host, in the folder of the job there."""

    def __init__(self, case, host, words, environment):
        program, *before = host.command("env", f"--chdir={host.home_inside}/.strait/job",
                                        *(f"{name}={value}" for name, value in environment.items()))
        self.host = host
        super().__init__(case, [*before, *words], case.run, program)

    def kill(self):
        os.kill(strait_on(self.host, self), signal.SIGKILL)

    def terminate(self):
        os.kill(strait_on(self.host, self), signal.SIGTERM)


def strait_on(host, launched):
    """The pid of the process there that the engine has started: the launcher, or the one that joins."""
    def network(pid):
        return os.readlink(f"/proc/{pid}/ns/net")

    for pid in runs.descendants(runs.processes(), launched.process.pid):
        words = pathlib.Path("/proc", str(pid), "cmdline").read_bytes().split(bytes(1))
        if not words[0].endswith((b"/strait", b"/strait-stage")) or network(pid) != network(host.pid):
            continue
        if words[1] in (b"run", b"--join"):
            return pid
    raise AssertionError(f"nothing of the run is on {host.name}:\n{launched.output()}")


class EnginesCase(hosts.HostsCase):
    COUNT = 3
    INSTALLED = False

    def setUp(self):
        super().setUp()
        self.run = runs.Run(self.hosts[0].home / ".strait/job/runs/job")
        self.write_recipe("job", SETTINGS)
        for host in self.hosts:
            job = host.home / ".strait/job"
            job.mkdir(parents=True)
            # Only the first node needs the model and the data.
            shutil.copy(self.home / "job.toml", job)
        shutil.copytree(self.home / "model", self.hosts[0].home / ".strait/job/model")
        shutil.copy(self.home / "train.jsonl", self.hosts[0].home / ".strait/job")

    def local_bits(self):
        if EnginesCase.bits is None:
            one_machine = {k: v for k, v in SETTINGS.items() if not k.startswith("hosts.")}
            EnginesCase.bits = self.train("local", one_machine).learnt(SETTINGS["train.steps"])
        return EnginesCase.bits

    bits = None

    def command(self, *words):
        return [runs.BIN / "strait", "run", "job.toml", "--rendezvous", "--resume-if-exists", *words]

    def start_node(self, rank, *words, secret=SECRET, **environment):
        return Node(self, self.hosts[rank], self.command(*words),
                    {"STRAIT_JOIN_SECRET": secret, **environment})

    def flags(self, rank, nodes=3, first=0):
        return ["--rank", rank, "--nodes", nodes, "--first", self.hosts[first].address]

    def by_flags(self):
        return [self.start_node(rank, *self.flags(rank)) for rank in range(3)]

    def saved(self, launched, step=5):
        launched.wait_for(f"a checkpoint of step {step}", lambda: self.whole_checkpoint(step))

    def whole_checkpoint(self, step):
        """Of at least this step and with all shards here: what only a lost host has is lost with it."""
        folders = [f for f in self.run.path.glob("checkpoints/step-*") if (f / "manifest.json").exists()]
        return any(int(f.name[5:]) >= step and len([*f.glob("*.safetensors")]) >= 4 for f in folders)

    def assert_job_done(self, nodes):
        for node in nodes:
            self.assertEqual(node.end(120), 0, node.output())
        self.assert_same_bits(self.local_bits(), self.run.learnt(SETTINGS["train.steps"]))


@hosts.needs_namespaces
class Rendezvous(EnginesCase):
    def test_node_that_a_kubelet_starts_again_rejoins(self):
        """The environment of an indexed Job with a headless service."""
        def pod(rank):
            return self.start_node(rank, "--nodes", 3, "--first", self.hosts[0].address,
                                   JOB_COMPLETION_INDEX=rank)

        pods = [pod(rank) for rank in (2, 1, 0)]
        self.saved(pods[2])
        pods[0].kill()
        pods[0].process.wait()
        pods[0] = pod(2)
        self.assert_job_done(pods)
        self.assertEqual(len(self.run.events("restart")), 1)
        self.assertIn("node2", self.run.events("restart")[0]["cause"])

    def test_first_node_that_comes_back_finds_the_others(self):
        """The environment of a SkyPilot task."""
        ips = "\n".join(host.address for host in self.hosts)

        def node(rank):
            return self.start_node(rank, SKYPILOT_NODE_RANK=rank, SKYPILOT_NUM_NODES=3, SKYPILOT_NODE_IPS=ips)

        nodes = [node(rank) for rank in range(3)]
        self.saved(nodes[0])
        self.launcher_was_killed = True
        nodes[0].kill()
        nodes[0].process.wait()
        nodes[0] = node(0)
        self.assert_job_done(nodes)
        self.assertIn("resuming from step", nodes[0].output())

    def test_sigterm_saves_and_the_same_command_goes_on(self):
        nodes = self.by_flags()
        nodes[0].at_step(7)
        nodes[0].terminate()
        for node in nodes:
            self.assertEqual(node.end(), 130, node.output())
        step = self.run.outcome()["step"]
        self.assertEqual(self.run.checkpoints()[-1], step)
        again = self.by_flags()
        self.assert_job_done(again)
        self.assertIn(f"resuming from step {step}", again[0].output())
        # Once more: there is nothing to do, and the nodes hear of it.
        last = self.by_flags()
        for node in last:
            self.assertEqual(node.end(), 0, node.output())
        self.assertIn("is complete", last[0].output())

    def test_node_that_gets_sigterm_leaves_after_a_checkpoint(self):
        nodes = self.by_flags()
        nodes[0].at_step(7)
        nodes[1].terminate()
        self.assertEqual(nodes[1].end(), 130, nodes[1].output())
        saved = self.run.checkpoints()[-1]
        self.assertGreaterEqual(saved, 7)
        nodes[1] = self.start_node(1, *self.flags(1))
        self.assert_job_done(nodes)
        self.assertEqual(self.run.events("restart")[0]["from"], saved)

    def test_stop_ends_the_job(self):
        nodes = self.by_flags()
        nodes[0].at_step(2)
        stopped = self.on_host(self.hosts[0], "env", f"--chdir={self.hosts[0].home_inside}/.strait/job",
                               runs.BIN / "strait", "stop", "runs/job")
        self.assertEqual(stopped.returncode, 0, stopped.stderr)
        for node in nodes:
            self.assertEqual(node.end(), 0, node.output())

    def errors(self, node):
        return [line for line in node.output().splitlines() if line.startswith("strait:") or " error " in line]

    def test_mistakes_are_one_sentence_each(self):
        for name, start, code, words in (
            ("another secret", lambda: self.start_node(1, *self.flags(1), secret="5b" * 32), 12,
             r"does not know this host: it has another secret"),
            ("another number", lambda: self.start_node(1, *self.flags(1, nodes=4)), 11, r'nodes = "4"'),
            ("two firsts", lambda: self.start_node(1, *self.flags(0)), 10, r"another machine; one node has rank 0"),
            ("the same first", lambda: self.start_node(0, *self.flags(0)), 10, r"port 47000 on 10\.77\.0\.1 is taken"),
            ("no secret", lambda: self.start_node(1, *self.flags(1), secret=""), 10, r"openssl rand -hex 32"),
        ):
            with self.subTest(name):
                first = self.start_node(0, *self.flags(0))
                first.wait_for("the rendezvous", lambda: "node1" in first.output())
                other = start()
                self.assertEqual(other.end(), code, other.output())
                (line,) = self.errors(other)
                self.assertRegex(line, words)
                if name != "another number":  # of which the first one hears, too
                    first.terminate()
                self.assertEqual(first.end(), 20 if name == "another number" else 130, first.output())

    def test_node_that_never_comes_is_named(self):
        for host in self.hosts:
            recipe = host.home / ".strait/job/job.toml"
            recipe.write_text(recipe.read_text().replace("join_wait = 60", "join_wait = 6"))
        first, one = [self.start_node(rank, *self.flags(rank)) for rank in range(2)]
        self.assertEqual(first.end(), 20, first.output())
        self.assertIn("node2 has not joined within 6 s", self.errors(first)[0])
        self.assertEqual(one.end(), 20, one.output())
        alone = self.start_node(2, *self.flags(2))
        self.assertEqual(alone.end(), 20, alone.output())
        self.assertIn("did not answer within 6 s", self.errors(alone)[0])


@hosts.needs_namespaces
@unittest.skipUnless(TORCHRUN.exists(), f"there is no {TORCHRUN}")
class Torchrun(EnginesCase):
    def test_worker_that_torchrun_starts_again_rejoins(self):
        nodes = []
        for rank, host in enumerate(self.hosts):
            words = [TORCHRUN, "--nnodes=3", f"--node-rank={rank}", "--nproc-per-node=1", "--max-restarts=3",
                     f"--master-addr={self.hosts[0].address}", "--master-port=29500", "--log-dir=logs", "--no-python"]
            nodes.append(Node(self, host, [*words, *self.command()], {"STRAIT_JOIN_SECRET": SECRET}))
        self.saved(nodes[0])
        nodes[2].kill()
        self.assert_job_done(nodes)
        self.assertGreaterEqual(len(self.run.events("training")), 2)


if __name__ == "__main__":
    hosts.main()
