"""Several hosts on one machine for tests: real sshd, and where that is allowed network, mounts and
processes of their own. Afterwards the proof that nothing is left on any of them.

Not a test itself. A test script:

    import hosts

    class Mine(hosts.HostsCase):
        COUNT = 3

        def test_x(self):
            self.train("x", self.over_ssh())

    if __name__ == "__main__":
        hosts.main()

`main` starts the script again inside a network namespace, so that the launcher sits on the cable
(namespace_host.BRIDGE) that its hosts are plugged into; without namespaces the hosts are sshd on
loopback (loopback_host), and what needs a network of its own is skipped (`needs_namespaces`).
"""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "processes"))

import debs
import loopback_host
import namespace_host
import runs
import sshd

INSIDE = "STRAIT_HOSTS_INSIDE"
# What a run may leave on a host, below its home: builds, the cache of shipped content, its own run
# directories.
KEPT = (".strait",)


def main():
    """Runs the tests of the calling script where hosts can be had, else skips them all."""
    reason = fetch_ssh()
    if not reason and INSIDE not in os.environ:
        enter_namespace()
    if not reason and not has_namespaces():
        reason = loopback_host.available()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    if has_namespaces():
        namespace_host.make_bridge()
    runs.main()


def fetch_ssh():
    """Called while the network is still the machine's. Returns why there is no ssh; empty: there is."""
    prefix, reason = debs.unpacked("openssh-server")
    if prefix and shutil.which("ssh") is None:  # the client came with it
        os.environ.update(debs.environment(prefix))
    return reason


def has_namespaces():
    return os.environ.get(INSIDE) == "namespaces"


def enter_namespace():
    probe = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
    why = probe.stderr.strip() if probe.returncode else namespace_host.available()
    if why:
        print(f"hosts are sshd on loopback: {why}")
        os.environ[INSIDE] = "loopback"
        return
    environment = dict(os.environ, **{INSIDE: "namespaces"})
    os.execvpe("unshare", ["unshare", "--net", sys.executable, "-B", *sys.argv], environment)


def require_namespaces():
    """For a bench: goes on in a network namespace with a bridge for hosts, or ends as skipped."""
    if INSIDE not in os.environ:
        if reason := fetch_ssh():
            print(f"skipped: {reason}")
            sys.exit(77)
        enter_namespace()
    if not has_namespaces():
        sys.exit(77)
    namespace_host.make_bridge()


def needs_namespaces(test):
    return unittest.skipUnless(has_namespaces(), "needs network namespaces")(test)


class Site:
    """Some hosts, up and logged into by one key. Ends with `close`."""

    def __init__(self, folder, count, **host_options):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.ssh = sshd.Ssh(self.folder / "ssh")
        kind = namespace_host.NamespaceHost if has_namespaces() else loopback_host.LoopbackHost
        self.hosts = []
        try:
            for number in range(count):
                host = kind(number, self.folder / f"h{number}", **host_options)
                self.ssh.admit(host)
                self.hosts.append(host)
                host.start(self.ssh)
            self.ssh.write_client_files(self.hosts)
            for host in self.hosts:
                wait_until_up(host)
        except BaseException:
            self.close()
            raise

    def names(self):
        return [host.name for host in self.hosts]

    def close(self):
        for host in self.hosts:
            host.power_off()

    def base_processes(self):
        return set().union(*(host.base_processes() for host in self.hosts))


def answers(host):
    with contextlib.suppress(OSError), socket.create_connection((host.address, host.port), 1) as s:
        return s.recv(4) == b"SSH-"
    return False


def wait_until_up(host):
    """Waits until sshd answers and the process of that connection has ended."""
    runs.wait_for(f"sshd of {host.name}", lambda: answers(host))
    runs.wait_for(f"the end of what answered on {host.name}", lambda: not children_of_sshd(host))


def children_of_sshd(host):
    table = runs.processes()
    return [pid for pid in runs.descendants(table, host.sshd_pid()) if table[pid][1] not in "ZX"]


def install_links(host):
    """Puts this build where `strait` looks for it on a host that sees this machine's files."""
    folder = host.home / ".strait"
    folder.mkdir(exist_ok=True)
    (folder / "bin").symlink_to(runs.BIN.resolve())


class HostsCase(runs.RunCase):
    """A RunCase with hosts. Each test gets fresh ones; at its end no process, socket, key or
    temporary file may be left on any of them."""

    COUNT = 3
    HOST_OPTIONS = {}
    INSTALLED = True  # this build is on the hosts already
    # A run over hosts, beside RunCase.SETTINGS.
    HOST_SETTINGS = {"hosts.backend": "ssh", "hosts.hold": 5, "hosts.restart": 0, "checkpoint.home": "all"}

    def setUp(self):
        super().setUp()
        self.site = Site(self.home / "site", self.COUNT, **self.HOST_OPTIONS)
        self.hosts = self.site.hosts
        self.addCleanup(self.site.close)
        self.addCleanup(self.assert_hosts_clean)
        if self.INSTALLED:
            for host in self.hosts:
                install_links(host)

    def over_ssh(self, settings=None, hosts=None):
        """Settings of a run over these hosts (all), for write_recipe, train and start."""
        return {
            **self.HOST_SETTINGS, "hosts.ssh_config": str(self.site.ssh.config),
            "hosts.list": hosts or self.site.names(), **(settings or {}),
        }

    def stopped(self, launched):
        """Stops the run, which saves and ends with code 0."""
        launched.end_by(signal.SIGINT, 0)

    def on_host(self, host, *words, **run):
        """Runs a program on a host, not through ssh: the finished process."""
        run = {"capture_output": True, "text": True, "timeout": runs.scaled_timeout(runs.TIMEOUT), **run}
        return subprocess.run(host.command(*words), **run)

    def run_processes(self):
        """Processes of runs, without those of the hosts themselves."""
        base = self.site.base_processes() if hasattr(self, "site") else set()
        return {pid: one for pid, one in super().run_processes().items() if pid not in base}

    def processes_on(self, host):
        """pid (as seen here) -> command line of all there but the host itself."""
        table, found = runs.processes(), {}
        for pid in host.processes(table, super().run_processes()):
            if table[pid][1] not in "ZX":
                with contextlib.suppress(OSError):
                    line = pathlib.Path("/proc", str(pid), "cmdline").read_bytes()
                    found[pid] = line.replace(bytes(1), b" ").decode(errors="replace").strip()
        return found

    def assert_hosts_clean(self, seconds=15):
        """No process, socket or file of the test is left, at the latest after `hosts.hold`, when
        agents without a launcher end."""
        up = [host for host in self.hosts if host.process]
        self.wait_for_no_processes(seconds)
        for host in up:
            runs.wait_for(f"closed sockets on {host.name}", lambda h=host: not h.sockets(), 5)
            self.assertEqual(self.files_left(host), [], f"files left on {host.name}")

    def files_left(self, host):
        """Files outside the folders that a run may use, and temporary or secret files in them."""
        left = [str(path) for path in host.tmp.rglob("*") if not namespace_host.is_kept(host, path)]
        for path in host.home.rglob("*"):
            inside = path.relative_to(host.home)
            temporary = runs.is_unfinished(path) or path.suffix in (".next", ".part")
            if namespace_host.is_kept(host, path):
                continue
            if inside.parts[0] not in KEPT or temporary or holds_secret(path):
                left.append(str(path))
        return left

    def leftover_files(self):
        """Without the hosts' files: files_left() checks them, but not on a host without power."""
        return [path for path in super().leftover_files() if not path.startswith(str(self.home / "site"))]


def holds_secret(path):
    """Whether the file contains the field of secret keys."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > 1 << 20:
        return False
    return b"secret_key" in path.read_bytes()
