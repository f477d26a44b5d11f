"""A host for machines without namespaces: an sshd on loopback with a port and a home of its own.
Network and processes are the machine's, so such hosts cannot be shaped or cut.

Not a test itself; see hosts.py.
"""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess

import sshd


def available():
    if sshd.is_root() and not any(
        line.startswith("sshd:") for line in pathlib.Path("/etc/passwd").read_text().splitlines()
    ):
        return "sshd as root needs a user called sshd"
    return None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class LoopbackHost:
    address = "127.0.0.1"

    def __init__(self, number, folder):
        self.number = number
        self.name = f"h{number}"
        self.folder = folder
        self.home = folder / "home"
        self.home_inside = str(self.home)
        self.tmp = folder / "tmp"
        self.kept = []  # it sees what we see
        self.port = None
        self.process = None
        for name in ("etc", "home", "tmp"):
            (folder / name).mkdir(parents=True)

    def start(self, ssh):
        """Tries another port if a program takes the free one before sshd binds it."""
        etc = self.folder / "etc"
        for _ in range(10):
            self.port = free_port()
            more = " ".join(f"{name}={value}" for name, value in self.environment().items())
            sshd.write_config(etc, etc, self.port, listen=[self.address], home=self.home, more=more)
            with open(self.folder / "sshd.log", "ab") as log:
                self.process = subprocess.Popen(
                    [ssh.prefix / "usr/sbin/sshd", "-D", "-e", "-f", etc / "sshd_config"],
                    env=sshd.environment(ssh.prefix), stdin=subprocess.DEVNULL, stderr=log, start_new_session=True,
                )
            if self.listens():
                return
            self.process.wait()
        raise AssertionError(f"{self.name}: {(self.folder / 'sshd.log').read_text()}")

    def environment(self):
        """NCCL takes the host for a machine of its own, and finds it here; CUDA keeps no cache in its home."""
        words = {"TMPDIR": self.tmp, "NCCL_HOSTID": self.name, "NCCL_SOCKET_IFNAME": "lo", "CUDA_CACHE_DISABLE": 1}
        if "LD_LIBRARY_PATH" in os.environ:  # of libraries that are unpacked, not installed
            words["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        return words

    def listens(self):
        while self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex((self.address, self.port)) == 0:
                    return True
        return False

    def power_off(self):
        if self.process is None:
            return
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    def command(self, *words):
        return ["env", f"HOME={self.home}", f"TMPDIR={self.tmp}", *map(str, words)]

    def sshd_pid(self):
        return self.process.pid

    def base_processes(self):
        return {self.process.pid} if self.process else set()

    def processes(self, _, candidates):
        """Those of the candidates that run with this host's home."""
        mark = f"HOME={self.home}".encode()
        found = []
        for pid in candidates:
            with contextlib.suppress(OSError):
                if mark in pathlib.Path("/proc", str(pid), "environ").read_bytes().split(bytes(1)):
                    found.append(pid)
        return found

    def sockets(self):
        return []  # they are the machine's; whoever holds one is found by its process
