"""A host made of namespaces: own network, processes, mounts and name, and an own sshd as its first
process. It has its own home, /tmp, /run, /dev/shm and user list, and sees the rest of the machine's
files as they are. When its first process ends, the kernel ends all others and the network with it.

Not a test itself; see hosts.py. Needs root.
"""

import ctypes
import os
import pathlib
import signal
import subprocess

import runs
import sshd

HOME = "/home"  # inside; a folder that every distribution has, hidden by the host's own
BRIDGE = "strait-br0"
NETWORK = "10.77.0."
NETWORK_6 = "fd00:77::"
LAUNCHER = f"{NETWORK}250"
# Folders of ours that every host sees at their own path: the clone.
KEPT = [pathlib.Path(__file__).resolve().parents[2]]
# States of sockets that no process holds any more; the kernel closes them.
CLOSED = ("TIME-WAIT", "FIN-WAIT-1", "FIN-WAIT-2", "LAST-ACK", "CLOSING")
_PR_SET_PDEATHSIG = 1

# Runs as the first process of the new namespaces; what differs between hosts is in the environment.
# Lists have a line for each path, because a path may have spaces.
SETUP = """
set -ef
IFS='
'
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd /run/openssh /run/host
for folder in $RIG_KEPT; do
  mkdir -p "/run/kept$folder"
  mount --bind "$folder" "/run/kept$folder"
done
mount --bind "$RIG_SSHD" /run/openssh
mount --bind "$RIG_FOLDER/etc" /run/host
mount --bind /run/host/passwd /etc/passwd
mount --bind /run/host/group /etc/group
mount -t tmpfs tmpfs /dev/shm
if [ -n "$RIG_HOME_SIZE" ]; then mount -t tmpfs -o mode=700,size="$RIG_HOME_SIZE" tmpfs "$RIG_HOME"
else mount --bind "$RIG_FOLDER/home" "$RIG_HOME"; fi
for folder in $RIG_HIDDEN; do mount -t tmpfs -o mode=755 tmpfs "$folder"; done
mount --bind "$RIG_FOLDER/tmp" /tmp
# The mount point may be there from an earlier start: the host's folders survive a power_off().
for folder in $RIG_KEPT; do
  mkdir -p "$folder"
  mount --bind "/run/kept$folder" "$folder"
done
mount -t proc proc /proc
hostname "$RIG_NAME"
ip link set dev lo up
cd /
echo ready
read -r go
exec /run/openssh/usr/sbin/sshd -D -e -f /run/host/sshd_config
"""


def is_kept(host, path):
    """Whether the path is a mount point of KEPT, or a parent of one, and not something that the
    host made."""
    places = {"/tmp": host.tmp, HOME: host.home}
    ours = [inside / kept.relative_to(outside)
            for kept in host.kept
            for outside, inside in places.items()
            if kept.is_relative_to(outside)]
    return any(kept.is_relative_to(path) for kept in ours)


def available():
    """None, or why there can be no such hosts. Call it inside the launcher's network namespace."""
    probe = f"ip link add {BRIDGE} type bridge && ip link del {BRIDGE}"
    words = ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "sh", "-c", probe]
    done = subprocess.run(words, capture_output=True, text=True)
    return None if done.returncode == 0 else f"no namespaces here: {done.stderr.strip()}"


def ip(*words, inside=None):
    before = [] if inside is None else ["nsenter", "-t", str(inside), "--net"]
    subprocess.run([*before, "ip", *words], check=True, capture_output=True, text=True)


def make_bridge():
    """The bridge that connects all hosts and the launcher; in the launcher's network namespace."""
    ip("link", "set", "dev", "lo", "up")
    ip("link", "add", BRIDGE, "type", "bridge", "forward_delay", "0")
    ip("address", "add", f"{LAUNCHER}/24", "dev", BRIDGE)
    ip("address", "add", f"{NETWORK_6}250/64", "dev", BRIDGE, "nodad")
    ip("link", "set", "dev", BRIDGE, "up")


def die_with_parent():
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def child_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return int(file.read().split()[0])


class NamespaceHost:
    """Number n of a site. `folder` is its own; `hidden`: folders that are empty there; home_size:
    such as "4m", a home that soon is full (then `home` cannot be seen from outside)."""

    port = 22

    def __init__(self, number, folder, hidden=(), home_size=""):
        self.number = number
        self.name = f"h{number}"
        self.address = f"{NETWORK}{number + 1}"
        self.address_6 = f"{NETWORK_6}{number + 1}"
        self.folder = folder
        self.home = folder / "home"
        self.home_inside = HOME
        self.tmp = folder / "tmp"
        self.cable = f"strait-h{number}"
        self.hidden = [str(path) for path in hidden]
        # /tmp and HOME are the host's own and hide ours, so what lies there is mounted again.
        self.kept = [path for path in KEPT if path.is_relative_to("/tmp") or path.is_relative_to(HOME)]
        self.home_size = home_size
        self.process = None
        self.pid = None
        for name in ("etc", "home", "tmp"):
            (folder / name).mkdir(parents=True)
        (folder / "etc/passwd").write_text(
            f"root:x:0:0:root:{HOME}:/bin/sh\nsshd:x:105:65534::/run/sshd:/usr/sbin/nologin\n"
        )
        (folder / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")

    def start(self, ssh):
        settings = {
            "RIG_SSHD": str(ssh.prefix), "RIG_FOLDER": str(self.folder), "RIG_HOME": HOME,
            "RIG_HOME_SIZE": self.home_size, "RIG_HIDDEN": "\n".join(self.hidden),
            "RIG_KEPT": "\n".join(map(str, self.kept)), "RIG_NAME": self.name,
        }
        sshd.write_config(self.folder / "etc", "/run/host", self.port, listen=["0.0.0.0", "::"], home=HOME)
        words = ["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--kill-child"]
        with open(self.folder / "sshd.log", "ab") as log:
            self.process = subprocess.Popen(
                [*words, "sh", "-c", SETUP], env={**sshd.environment("/run/openssh", ssh.prefix), **settings},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
                preexec_fn=die_with_parent,
            )
        if self.process.stdout.readline() != b"ready\n":
            raise AssertionError(f"{self.name}: {(self.folder / 'sshd.log').read_text()}")
        self.pid = child_of(self.process.pid)
        self.connect_network()
        self.process.stdin.write(b"go\n")
        self.process.stdin.close()

    def connect_network(self):
        # A fixed MAC address: the others still have it in their ARP caches after a restart.
        card = f"02:00:00:00:00:{self.number + 1:02x}"
        peer = ["peer", "name", "eth0", "address", card, "netns", str(self.pid)]
        ip("link", "add", self.cable, "type", "veth", *peer)
        ip("link", "set", "dev", self.cable, "master", BRIDGE, "up")
        ip("address", "add", f"{self.address}/24", "dev", "eth0", inside=self.pid)
        ip("address", "add", f"{self.address_6}/64", "dev", "eth0", "nodad", inside=self.pid)
        ip("link", "set", "dev", "eth0", "up", inside=self.pid)

    def shape(self, up_megabits=0, down_megabits=0, packets=1500):
        """Limits what the host sends and receives; 0: no limit."""
        for rate, device, inside in ((up_megabits, "eth0", self.pid), (down_megabits, self.cable, None)):
            before = [] if inside is None else ["nsenter", "-t", str(inside), "--net"]
            tc = [*before, "tc", "qdisc"]
            subprocess.run([*tc, "del", "dev", device, "root"], capture_output=True)
            # A narrow link has no packets of 64 kB.
            size = (1, packets + 100) if rate else (65535, 65536)
            ip(*("link", "set", "dev", device), *("gso_max_segs", str(size[0]), "gso_max_size", str(size[1])),
               inside=inside)
            if rate:
                burst = max(4000, int(rate * 1e6 / 8 / 250))  # the kernel looks 250 times a second
                limit = ["burst", str(burst), "limit", str(max(64_000, 10 * burst))]
                words = [*tc, "add", "dev", device, "root", "tbf", "rate", f"{rate}mbit", *limit]
                subprocess.run(words, check=True, capture_output=True, text=True)

    def refuse(self, *addresses):
        """Drops packets to these addresses silently; all others are still reached."""
        for address in addresses:
            ip("route", "add", "blackhole", address, inside=self.pid)

    def accept(self, *addresses):
        for address in addresses:
            ip("route", "del", "blackhole", address, inside=self.pid)

    def cut(self):
        """Takes the cable down: packets are lost silently."""
        ip("link", "set", "dev", self.cable, "down")

    def heal(self):
        ip("link", "set", "dev", self.cable, "up")

    def power_off(self):
        """Kills all its processes at once, after its cable is cut, so that no FIN gets out."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.cut()
            os.kill(self.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        # The kernel removes a namespace's devices late, but the name is needed again at once.
        subprocess.run(["ip", "link", "del", self.cable], capture_output=True)
        self.process = None

    def command(self, *words):
        """argv that runs `words` on this host."""
        enter = ["nsenter", "-t", str(self.pid), "--net", "--mount", "--pid", "--uts"]
        return [*enter, "--root", "--wd=/", "env", f"HOME={HOME}", *map(str, words)]

    def sshd_pid(self):
        return self.pid

    def base_processes(self):
        """What belongs to the host itself."""
        return {self.process.pid, self.pid} if self.process else set()

    def processes(self, table, _):
        """Processes of this host, from a table of all processes."""
        return runs.descendants(table, self.pid)

    def sockets(self):
        """Every socket there that is not sshd's own listening one: lines of `ss`."""
        done = subprocess.run(
            ["nsenter", "-t", str(self.pid), "--net", "ss", "-Hantux"], check=True, capture_output=True, text=True,
        )
        lines = [line for line in done.stdout.splitlines() if line.split()[1] not in CLOSED]
        return [line for line in lines if not (" LISTEN " in line and ":22 " in line)]
