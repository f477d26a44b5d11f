"""A real Slurm on this machine for tests: munged, slurmctld and several slurmd out of unpacked
packages, with keys, ports, directories and a configuration of the test's own.

Not a test itself. `Cluster.reason_to_skip()` says why there can be none here; then the test is
skipped with that reason.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("hosts", "processes")]

import debs
import runs

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge")
START_LIMIT = 60  # seconds until the nodes are idle
END_LIMIT = 20

# cred_expire is also how long a requeued job waits; KillWait is how long a job has after SIGTERM.
CONFIGURATION = """\
ClusterName=strait
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket,cred_expire=5
CredType=cred/munge
PluginDir={plugins}
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool-%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
KillWait=10
SchedulerParameters=batch_sched_delay=0,sched_interval=2
NodeName=n[0-{last}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{node_ports}] CPUs=2 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:8
"""


def free_ports(count):
    """That many neighbouring ports: a configuration names those of its nodes as a range."""
    for _ in range(100):
        with contextlib.ExitStack() as held:
            first = held.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            start = first.getsockname()[1]
            if start + count > 65535:
                continue
            with contextlib.suppress(OSError):
                for port in range(start + 1, start + count):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
                return start
    raise AssertionError(f"found no {count} free ports in a row")


class Cluster:
    """Running when made; close() ends its daemons by their pid files."""

    def __init__(self, nodes=2):
        self.nodes = nodes
        unpacked, reason = debs.unpacked(*PACKAGES)
        assert reason is None, reason
        # Short: the path of a socket has an end after about a hundred characters.
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="strait-slurm-"))
        # slurm.conf cannot name a folder with a space, where a clone may lie.
        self.prefix = self.home / "packages"
        self.prefix.symlink_to(unpacked)
        self.environment = debs.environment(self.prefix)
        self.environment["SLURM_CONF"] = str(self.home / "slurm.conf")
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @staticmethod
    def reason_to_skip():
        if os.geteuid() != 0:
            return "a Slurm of one's own needs root"
        _, reason = debs.unpacked(*PACKAGES)
        return reason

    def start(self):
        (self.home / "state").mkdir()
        key = self.home / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self.home.chmod(0o755)  # munged refuses a socket that others cannot reach
        plugins = next(self.prefix.glob("usr/lib/*/slurm-wlm"))
        port = free_ports(1 + self.nodes)
        (self.home / "slurm.conf").write_text(
            CONFIGURATION.format(host=socket.gethostname(), home=self.home, plugins=plugins, controller_port=port,
                                 node_ports=f"{port + 1}-{port + self.nodes}", last=self.nodes - 1)
        )
        # As root it complains about the owners of folders, and works: --force.
        files = [f"--{k}={self.home / v}" for k, v in {
            "key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid",
            "log-file": "munged.log", "seed-file": "munge.seed"}.items()]
        self.daemon("munged", "--force", *files)
        self.daemon("slurmctld-wlm", "-c")
        stepd = self.prefix / "usr/sbin/slurmstepd-wlm"
        for node in range(self.nodes):
            self.daemon("slurmd-wlm", "-d", str(stepd), "-N", f"n{node}")
        runs.wait_for("idle nodes", self.idle, START_LIMIT)

    def daemon(self, program, *words):
        """Starts a daemon, which detaches when it is up."""
        path = self.prefix / "usr/sbin" / program
        done = subprocess.run([path, *words], env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=START_LIMIT)
        if done.returncode != 0:
            logs = "".join(p.read_text() for p in self.home.glob("*.log"))
            raise AssertionError(f"{program} does not start: {done.stderr}\n{logs}")

    def idle(self):
        code, out, _ = self.call("sinfo", "--noheader", "--partition=all", "--format=%T %D")
        return code == 0 and out.split() == ["idle", str(self.nodes)]

    def call(self, program, *words):
        """One of Slurm's own commands: (exit code, stdout, stderr)."""
        done = subprocess.run([self.prefix / "usr/bin" / program, *map(str, words)], env=self.environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=START_LIMIT)
        return done.returncode, done.stdout, done.stderr

    def jobs(self):
        """id -> state of pending and running jobs."""
        code, out, err = self.call("squeue", "--noheader", "--format=%A %T")
        assert code == 0, err
        return dict(line.split() for line in out.splitlines())

    def close(self):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired, AssertionError):
            # Not even a failed test leaves a job behind.
            for job in self.jobs():
                self.call("scancel", job)
            runs.wait_for("the end of all jobs", lambda: not self.jobs(), END_LIMIT)
        pids = self.pids()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        try:
            runs.wait_for("the end of all daemons", lambda: not any(map(runs.alive, pids)), END_LIMIT)
        finally:
            for pid in filter(runs.alive, pids):
                os.kill(pid, signal.SIGKILL)
            shutil.rmtree(self.home)

    def pids(self):
        """Process ids of the daemons."""
        names = [*(f"slurmd-n{node}" for node in range(self.nodes)), "slurmctld", "munged"]
        return [int(text) for name in names if (text := self.pid_text(name))]

    def pid_text(self, name):
        with contextlib.suppress(FileNotFoundError):
            return (self.home / f"{name}.pid").read_text().strip()
        return ""
