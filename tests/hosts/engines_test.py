"""The commands of docs/engines.md on three nodes, and what happens when a node's process is killed: whatever starts it
again has it back in the run, to the bits of a run on one machine. What a node is comes from the engine's own variables.
Slurm and Ray have tests of their own; the recipe is the same for all."""

import os
import pathlib
import re
import shlex
import shutil
import signal
import sys
import unittest

import debs
import hosts
import runs

sys.path.insert(0, str(runs.ROOT / "tests" / "engines"))

import engines

TORCHRUN = pathlib.Path(sys.executable).with_name("torchrun")
OPEN_MPI, MPICH = (debs.unpacked(package) for package in ("openmpi-bin", "mpich"))
JOB = ".strait/job"  # below the home of a host: the folder where the command is called
# Where a host finds strait and torchrun.
PATH = f"{runs.BIN}:{TORCHRUN.parent}:{os.environ['PATH']}"


class Node(runs.Launched):
    """Shell commands on a host, in the folder of the job there."""

    def __init__(self, case, host, script, environment):
        settings = {"PATH": PATH, "STRAIT_JOIN_SECRET": engines.SECRET, **environment}
        program, *before = host.command("env", f"--chdir={host.home_inside}/{JOB}",
                                        *(f"{name}={value}" for name, value in settings.items()))
        self.host = host
        super().__init__(case, [*before, "sh", "-c", script], case.run, program)

    def kill(self):
        os.kill(strait_on(self.host, self), signal.SIGKILL)

    def terminate(self):
        os.kill(strait_on(self.host, self), signal.SIGTERM)


def words_of(pid):
    return pathlib.Path("/proc", str(pid), "cmdline").read_bytes().split(bytes(1))


def strait_on(host, launched):
    """The pid of the process there that the engine has started: the launcher, or the one that joins."""
    def network(pid):
        return os.readlink(f"/proc/{pid}/ns/net")

    for pid in runs.descendants(runs.processes(), launched.process.pid):
        words = words_of(pid)
        if words[0].endswith((b"strait", b"strait-stage")) and words[1] in (b"run", b"--join") and \
                network(pid) == network(host.pid):
            return pid
    raise AssertionError(f"nothing of the run is on {host.name}:\n{launched.output()}")


class EnginesCase(hosts.HostsCase):
    COUNT = 3
    INSTALLED = False

    def setUp(self):
        super().setUp()
        self.run = runs.Run(self.hosts[0].home / JOB / "runs" / "recipe")
        self.recipe = engines.RECIPE.read_text()
        for host in self.hosts:
            (host.home / JOB).mkdir(parents=True)
        self.write_recipes()
        # Only the first node needs the model and the data.
        shutil.copytree(self.home / "model", self.hosts[0].home / JOB / "model")
        shutil.copy(self.home / "train.jsonl", self.hosts[0].home / JOB)

    def write_recipes(self, **changes):
        for key, value in changes.items():
            self.recipe = re.sub(rf"(?m)^{key} = .*", f"{key} = {value}", self.recipe)
        for host in self.hosts:
            (host.home / JOB / "recipe.toml").write_text(self.recipe)

    def start_node(self, rank, script, **environment):
        return Node(self, self.hosts[rank], script, environment)

    def by_flags(self, node, nodes=3, rank=None, secret=engines.SECRET, first=None):
        script = engines.commands("Without an engine", HOST=(first or self.hosts[0]).address)
        return self.start_node(node, script.replace("--nodes 3", f"--nodes {nodes}"), STRAIT_JOIN_SECRET=secret,
                               RANK=node if rank is None else rank)

    def three_by_flags(self):
        return [self.by_flags(rank) for rank in range(3)]

    def by_file(self, rank, name, names, **variables):
        """As Kubernetes and SkyPilot start it: their file, their variables, and the cluster's addresses for names."""
        words = [names.get(word, word) for word in engines.words_of_file(name, variables)]
        return self.start_node(rank, shlex.join(["strait", *words]), **variables)

    def saved(self, launched, step=5):
        launched.wait_for(f"a checkpoint of step {step}", lambda: self.whole_checkpoint(step))

    def whole_checkpoint(self, step):
        """Of at least this step and with all shards here: what only a lost host has is lost with it."""
        folders = [f for f in self.run.path.glob("checkpoints/step-*") if (f / "manifest.json").exists()]
        return any(int(f.name[5:]) >= step and len([*f.glob("*.safetensors")]) >= 4 for f in folders)

    def assert_job_done(self, nodes):
        for node in nodes:
            self.assertEqual(node.end(120), 0, node.output())
        engines.assert_trained(self, self.run)


@hosts.needs_namespaces
class Rendezvous(EnginesCase):
    def test_node_that_a_kubelet_starts_again_rejoins(self):
        """The environment of an indexed Job with a headless service."""
        def pod(rank):
            names = {"strait-0.strait": self.hosts[0].address}
            return self.by_file(rank, "kubernetes-job.yaml", names, JOB_COMPLETION_INDEX=str(rank))

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
            return self.by_file(rank, "skypilot.yaml", {}, SKYPILOT_NODE_RANK=str(rank), SKYPILOT_NUM_NODES="3",
                                SKYPILOT_NODE_IPS=ips)

        nodes = [node(rank) for rank in range(3)]
        self.saved(nodes[0])
        self.launcher_was_killed = True
        nodes[0].kill()
        nodes[0].process.wait()
        nodes[0] = node(0)
        self.assert_job_done(nodes)
        self.assertIn("resuming from step", nodes[0].output())

    def test_sigterm_saves_and_the_same_command_goes_on(self):
        nodes = self.three_by_flags()
        nodes[0].at_step(7)
        nodes[0].terminate()
        for node in nodes:
            self.assertEqual(node.end(), 130, node.output())
        step = self.run.outcome()["step"]
        self.assertEqual(self.run.checkpoints()[-1], step)
        again = self.three_by_flags()
        self.assert_job_done(again)
        self.assertIn(f"resuming from step {step}", again[0].output())
        # Once more: there is nothing to do, and the nodes hear of it.
        last = self.three_by_flags()
        for node in last:
            self.assertEqual(node.end(), 0, node.output())
        self.assertIn("is complete", last[0].output())

    def test_node_that_gets_sigterm_leaves_after_a_checkpoint(self):
        nodes = self.three_by_flags()
        nodes[0].at_step(7)
        nodes[1].terminate()
        self.assertEqual(nodes[1].end(), 130, nodes[1].output())
        saved = self.run.checkpoints()[-1]
        self.assertGreaterEqual(saved, 7)
        nodes[1] = self.by_flags(1)
        self.assert_job_done(nodes)
        self.assertEqual(self.run.events("restart")[0]["from"], saved)

    def test_stop_ends_the_job(self):
        nodes = self.three_by_flags()
        nodes[0].at_step(2)
        stopped = self.on_host(self.hosts[0], "env", f"--chdir={self.hosts[0].home_inside}/{JOB}",
                               runs.BIN / "strait", "stop", "runs/recipe")
        self.assertEqual(stopped.returncode, 0, stopped.stderr)
        for node in nodes:
            self.assertEqual(node.end(), 0, node.output())

    def errors(self, node):
        return [line for line in node.output().splitlines() if line.startswith("strait:") or " error " in line]

    def test_mistakes_are_one_sentence_each(self):
        first = self.by_flags(0)
        first.wait_for("the rendezvous", lambda: "node1" in first.output())
        for name, start, code, words in (
            ("another secret", lambda: self.by_flags(1, secret="5b" * 32), 12,
             r"does not know this host: it has another secret"),
            ("two firsts", lambda: self.by_flags(1, rank=0), 10, r"another machine; one node has rank 0"),
            ("the same first", lambda: self.by_flags(0), 10, r"port 47000 on 10\.77\.0\.1 is taken"),
            ("no secret", lambda: self.by_flags(1, secret=""), 10, r"openssl rand -hex 32"),
            ("another number", lambda: self.by_flags(1, nodes=4), 11, r'nodes = "4"'),
        ):
            with self.subTest(name):
                self.assertIsNone(first.process.poll(), first.output())
                other = start()
                self.assertEqual(other.end(), code, other.output())
                (line,) = self.errors(other)
                self.assertRegex(line, words)
        self.assertEqual(first.end(), 20, first.output())  # it hears of the last one

    def test_nodes_hear_why_the_first_one_cannot_start(self):
        (self.hosts[0].home / JOB / "train.jsonl").unlink()
        nodes = self.three_by_flags()
        for node in nodes:
            self.assertEqual(node.end(), 10, node.output())
            (line,) = self.errors(node)
            self.assertIn("train.jsonl", line)

    def test_node_that_never_comes_is_named(self):
        self.write_recipes(join_wait=6)
        first, one = [self.by_flags(rank) for rank in range(2)]
        alone = self.by_flags(2, first=self.hosts[2])  # where no process answers
        self.assertEqual(first.end(), 20, first.output())
        self.assertIn("node2 has not joined within 6 s", self.errors(first)[0])
        self.assertEqual(one.end(), 20, one.output())
        self.assertEqual(alone.end(), 20, alone.output())
        self.assertIn("did not answer within 6 s", self.errors(alone)[0])


@hosts.needs_namespaces
@unittest.skipUnless(TORCHRUN.exists(), f"there is no {TORCHRUN}")
class Torchrun(EnginesCase):
    def test_worker_that_torchrun_starts_again_rejoins(self):
        nodes = []
        for rank, host in enumerate(self.hosts):
            script = engines.commands("torchrun", HOST=self.hosts[0].address)
            # Its logs are temporary files.
            nodes.append(Node(self, host, script, {"RANK": rank, "TMPDIR": f"{host.home_inside}/{JOB}"}))
        self.saved(nodes[0])
        nodes[2].kill()
        self.assert_job_done(nodes)
        self.assertGreaterEqual(len(self.run.events("training")), 2)


@hosts.needs_namespaces
class FromOneNode(EnginesCase):
    """What reaches the others by ssh, from the first node."""

    def setUp(self):
        super().setUp()
        first = self.hosts[0]
        keys = first.home / ".ssh"
        keys.mkdir(mode=0o700)
        self.addCleanup(shutil.rmtree, keys)
        shutil.copy(self.site.ssh.key, keys / "id_ed25519")
        shutil.copy(self.site.ssh.known_hosts, keys)
        addresses = [host.address for host in self.hosts]
        (first.home / JOB / "hostfile").write_text("{} slots=2\n{} slots=1\n{} slots=1\n".format(*addresses))
        (first.home / JOB / "hosts").write_text("".join(f"{one}\n" for one in addresses))

    def write_program(self, name, script):
        """On all hosts: its path there."""
        for host in self.hosts:
            program = host.home / ".strait" / name
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o700)
        return f"{self.hosts[0].home_inside}/.strait/{name}"

    def assert_same_command_goes_on(self, script, environment):
        """The launcher of MPI ends all ranks where one has failed."""
        def start():
            return self.start_node(0, script, **{**environment, "PATH": f"{self.hosts[0].home_inside}/.strait:{PATH}"})

        first = start()
        self.saved(first)
        self.launcher_was_killed = True
        table = runs.processes()
        pid, = (pid for pid in self.hosts[2].processes(table, None) if b"--join" in words_of(pid))
        os.kill(pid, signal.SIGKILL)
        self.assertNotEqual(first.end(), 0, first.output())
        again = start()
        self.assert_job_done([again])
        self.assertIn("resuming from step", again.output())

    @unittest.skipIf(OPEN_MPI[1], OPEN_MPI[1])
    def test_same_mpirun_of_open_mpi_goes_on(self):
        prefix = OPEN_MPI[0]
        tree = next(prefix.glob("usr/lib/*/openmpi/lib"))
        environment = {  # of programs that lie elsewhere than Debian installs them
            "OPAL_PREFIX": prefix / "usr", "OPAL_LIBDIR": tree, "OPAL_PKGLIBDIR": tree / "openmpi3",
            "OPAL_PKGDATADIR": prefix / "usr/share/openmpi", "PMIX_MCA_pcompress_base_silence_warning": "1",
            "LD_LIBRARY_PATH": ":".join(debs.library_folders(prefix)), "PATH": PATH}
        exports = "".join(f"export {name}={shlex.quote(str(value))}\n" for name, value in environment.items())
        self.write_program("mpirun", f'exec {shlex.quote(str(prefix))}/usr/bin/mpirun.openmpi "$@"')
        daemon = self.write_program("orted", f'{exports}exec {shlex.quote(str(prefix))}/usr/bin/orted "$@"')
        self.assert_same_command_goes_on(engines.commands("Open MPI", HOST=self.hosts[0].address), {
            **environment, "OMPI_MCA_orte_launch_agent": daemon, "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})

    @unittest.skipIf(MPICH[1], MPICH[1])
    def test_same_mpiexec_of_mpich_goes_on(self):
        prefix = MPICH[0]
        libraries = f"LD_LIBRARY_PATH={':'.join(debs.library_folders(prefix))}"
        program = shlex.quote(f"{prefix}/usr/bin/mpiexec.hydra")
        self.write_program("mpiexec", f'exec env {shlex.quote(libraries)} {program} "$@"')
        there = shlex.quote(shlex.quote(libraries))
        shell = self.write_program("remote_shell", f'host=$2; shift 2; exec ssh "$host" env {there} "$@"')
        self.assert_same_command_goes_on(engines.commands("MPICH", HOST=self.hosts[0].address),
                                         {"HYDRA_LAUNCHER_EXEC": shell, "HYDRA_IFACE": "eth0"})

    def test_hostfile(self):
        for host in self.hosts:
            hosts.install_links(host)
        self.assert_job_done([self.start_node(0, engines.commands("Without an engine", 1))])
        self.assertEqual({one["host"] for one in self.run.plan()["processes"]}, {host.address for host in self.hosts})


if __name__ == "__main__":
    hosts.main()
