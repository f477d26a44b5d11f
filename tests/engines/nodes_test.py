"""The commands of docs/engines.md and of the files in recipes/engines on three nodes, and what happens when a node's
process is killed: whatever starts it again has it back in the run, to the bits of a run on one machine. What a node is
comes from the engine's own variables. Slurm and Ray have tests of their own; the recipe is the same for all."""

import os
import pathlib
import re
import shlex
import shutil
import signal
import sys
import unittest

import engines
import runs

sys.path.insert(0, str(runs.ROOT / "tests" / "hosts"))

import debs
import hosts

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

    def by_file(self, file, rank, variables):
        """As the engine of this file starts the node, which finds the first one by the name that the file has for it."""
        values = {"rank": rank, "first": self.hosts[0].address, "all": "\n".join(host.address for host in self.hosts)}
        own = {name: value.format_map(values) for name, value in variables.items()}
        words = engines.words_of_file(file, own)
        names = " ".join(word for word in words if word.endswith(".strait"))
        (self.hosts[rank].home / JOB / "names").write_text(f"127.0.0.1 localhost\n{values['first']} {names}\n")
        return self.start_node(rank, f"mount --bind names /etc/hosts && exec {shlex.join(['strait', *words])}", **own)

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
class Files(EnginesCase):
    def assert_goes_on(self, file, lost, **variables):
        """When processes of these nodes have been killed, and the engine has started them again."""
        nodes = [self.by_file(file, rank, variables) for rank in range(3)]
        self.saved(nodes[0])
        self.launcher_was_killed = 0 in lost
        for rank in lost:
            nodes[rank].kill()
            nodes[rank].process.wait()
        for rank in lost:
            nodes[rank] = self.by_file(file, rank, variables)
        self.assert_job_done(nodes)
        if 0 in lost:
            self.assertIn("resuming from step", nodes[0].output())
        else:
            restart, = self.run.events("restart")
            self.assertIn(f"node{lost[0]}", restart["cause"])

    def test_job_of_kubernetes_makes_another_pod(self):
        self.assert_goes_on("kubernetes-job.yaml", [2], JOB_COMPLETION_INDEX="{rank}")

    def test_job_set_makes_another_pod_of_the_first_node(self):
        self.assert_goes_on("jobset.yaml", [0], JOB_COMPLETION_INDEX="{rank}")

    @runs.campaign  # what happens is tried above, with the variables of another engine
    def test_train_job_makes_another_pod(self):
        self.assert_goes_on("trainjob.yaml", [1], JOB_COMPLETION_INDEX="{rank}", PET_NODE_RANK="{rank}", PET_NNODES="3",
                            PET_NPROC_PER_NODE="4", PET_MASTER_ADDR="strait-node-0-0.strait", PET_MASTER_PORT="29500")

    @runs.campaign  # what happens is tried above, with the variables of another engine
    def test_volcano_starts_the_container_again(self):
        self.assert_goes_on("volcano.yaml", [2], VC_TASK_INDEX="{rank}")

    def test_skypilot_starts_all_nodes_again(self):
        self.assert_goes_on("skypilot.yaml", [1, 0, 2], SKYPILOT_NODE_RANK="{rank}", SKYPILOT_NUM_NODES="3",
                            SKYPILOT_NODE_IPS="{all}")

    @runs.campaign  # what happens is tried above, with the variables of another engine
    def test_dstack_starts_all_nodes_again(self):
        self.assert_goes_on("dstack.yaml", [2, 1, 0], DSTACK_NODE_RANK="{rank}", DSTACK_NODES_NUM="3",
                            DSTACK_MASTER_NODE_IP="{first}")


@hosts.needs_namespaces
class Rendezvous(EnginesCase):
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

    def assert_ends(self, node, code, words):
        """With one sentence, which matches `words`."""
        self.assertEqual(node.end(), code, node.output())
        line, = [one for one in node.output().splitlines() if one.startswith("strait:") or " error " in one]
        self.assertRegex(line, words)

    def test_mistakes_are_one_sentence_each(self):
        first = self.by_flags(0)
        first.wait_for("the rendezvous", lambda: "node1" in first.output())
        mistakes = [
            (self.by_flags(1, secret="5b" * 32), 12, r"does not know this host: it has another secret"),
            (self.by_flags(1, secret=""), 10, r"openssl rand -hex 32"),
            (self.by_flags(1, rank=0), 10, r"another machine; one node has rank 0"),
            (self.by_flags(0), 10, r"port 47000 on 10\.77\.0\.1 is taken")]
        for mistake in mistakes:
            self.assert_ends(*mistake)
        self.assertIsNone(first.process.poll(), first.output())
        self.assert_ends(self.by_flags(1, nodes=4), 11, r'nodes = "4"')
        self.assert_ends(first, 20, r'nodes = "4"')

    def test_nodes_hear_why_the_first_one_cannot_start(self):
        (self.hosts[0].home / JOB / "train.jsonl").unlink()
        nodes = self.three_by_flags()
        for node in nodes:
            self.assert_ends(node, 10, "train.jsonl")

    def test_node_that_never_comes_is_named(self):
        self.write_recipes(join_wait=6)
        first, one = [self.by_flags(rank) for rank in range(2)]
        alone = self.by_flags(2, first=self.hosts[2])  # where no process answers
        for node in first, one:
            self.assert_ends(node, 20, "node2 has not joined within 6 s")
        self.assert_ends(alone, 20, "did not answer within 6 s")


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

    @runs.campaign
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
