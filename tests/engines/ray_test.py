"""A run on a Ray cluster of three nodes on this machine: whatever is killed, the run goes on, to the same bits."""

import os
import pathlib
import shutil
import signal
import sys
import tempfile
import unittest.mock

import engines
import runs

try:
    import ray  # noqa: F401: of the Python that launches, which is this one
    from ray.cluster_utils import Cluster
except ImportError as error:
    print(f"skipped: {error}; ./strait test installs it")
    sys.exit(77)

NODE = {"num_cpus": 8, "num_gpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}


def program_of(pid):
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""  # it has ended


def process_of_node(rank, table):
    """(pid, parent) of the strait, or of its agent, that the task of this node started."""
    for pid in runs.descendants(table, os.getpid()):
        try:
            variables = pathlib.Path("/proc", str(pid), "environ").read_bytes().split(bytes(1))
        except OSError:
            continue  # it ended while we looked
        parent = table[pid][0]
        if f"RANK={rank}".encode() in variables and "strait" in program_of(pid) and "python" in program_of(parent):
            return pid, parent
    return None


class Ray(runs.RunCase):
    @classmethod
    def setUpClass(cls):
        # Short, because sockets are in it.
        files = tempfile.mkdtemp(prefix="r-")
        cls.addClassCleanup(shutil.rmtree, files, ignore_errors=True)
        # Ray writes an address there, too, and expects the folder.
        pathlib.Path("/tmp/ray").mkdir(exist_ok=True)
        cluster = Cluster(initialize_head=True, head_node_args={**NODE, "temp_dir": files})
        cls.addClassCleanup(cluster.shutdown)
        for _ in range(2):
            cluster.add_node(**NODE)
        cluster.wait_for_nodes()
        cls.address = cluster.address
        variables = unittest.mock.patch.dict(os.environ, RAY_ADDRESS=cluster.address, STRAIT_PYTHON=sys.executable)
        variables.start()
        cls.addClassCleanup(variables.stop)

    def setUp(self):
        super().setUp()
        self.addCleanup(self.wait_for_no_processes, 60)

    def run_processes(self):
        """Without the cluster's own, which outlive each test."""
        return {pid: one for pid, one in super().run_processes().items() if "strait" in program_of(pid)}

    def kill(self, launched, rank, worker=False):
        """The command on a node, or the worker of Ray that waits for it."""
        found = launched.wait_for(f"the process of node {rank}", lambda: process_of_node(rank, runs.processes()))
        os.kill(found[worker], signal.SIGKILL)

    def test_run_goes_on_to_the_same_bits_whatever_is_killed(self):
        engines.expected(self)
        script = engines.commands("Ray").replace("HOST:6379", self.address).rstrip() + " --restarts 9"
        launched = runs.Launched(self, ["-c", script], self.run_of("recipe"), "sh",
                                 env={**os.environ, "PATH": f"{runs.BIN}:{os.environ['PATH']}"})
        for step, rank, worker in ((10, 1, False), (25, 2, True), (40, 0, False), (55, 0, True)):
            launched.at_checkpoint(step)
            self.kill(launched, rank, worker)
        self.assertEqual(launched.end(120), 0, launched.output())
        self.assertIn("resuming from step", launched.output())
        engines.assert_trained(self, self.run_of("recipe"))

    def test_ctrl_c_stops_the_run_at_a_checkpoint(self):
        recipe = self.write_recipe("ray", {"train.steps": 100_000, "pipeline.stages": 3})
        launched = self.launch("launch", recipe, "--engine", "ray", "--nodes", 3, name="ray")
        launched.at_step(2)
        launched.signal(signal.SIGINT)
        self.assertEqual(launched.end(), 130, launched.output())  # as with any engine: it is not done
        outcome = self.run_of("ray").outcome()
        self.assertEqual((outcome["code"], outcome["stopped"]), (0, True))
        self.assertEqual(self.run_of("ray").checkpoints(), [outcome["step"]])

    def test_what_cannot_start_is_one_sentence(self):
        recipe = self.write_recipe("ray")
        _, err = self.ended(10, "launch", recipe, "--engine", "ray", "--nodes", 4, "--wait", 2)
        self.assertRegex(err, r"(?m)^strait: the Ray cluster has not had 4 nodes .* of its 3 nodes 3 have as much")
        code, out, err = self.strait("launch", self.write_recipe("bad", {"train.steps": "many"}), "--engine", "ray", "--nodes", 3)
        self.assertEqual(code, 10, out + err)
        self.assertRegex(out, r'(?m)^strait: train.steps is "many"')
        with unittest.mock.patch.dict(os.environ, STRAIT_PYTHON="/bin/false-python"):
            self.assertEqual(self.strait("launch", recipe, "--engine", "ray", "--nodes", 3)[0], 10)


if __name__ == "__main__":
    runs.main()
