"""A Debian 12 as it comes, in a folder: chroots of it, without network and without a compiler.

Not a test itself. What is downloaded is kept in $STRAIT_DEBIAN, or in build/PRESET/debian: `base`, the system that
debootstrap makes, and folders of wheels. `kept(name, make)` makes such a folder once.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/hosts"))

import debs

KEPT = pathlib.Path(os.environ.get("STRAIT_DEBIAN", debs.BUILD / "debian"))
LIMIT = 900  # seconds, for what hangs
USER = 1000
# What a login has. The folder /packages of the chroot is what the test brings along.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/srv/user", "LC_ALL": "C.UTF-8",
               "DEBIAN_FRONTEND": "noninteractive", "PIP_NO_INDEX": "1", "PYTHONDONTWRITEBYTECODE": "1",
               "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


class Absent(Exception):
    """What the test needs cannot be had here."""


class Failed(Exception):
    """A program of this machine, with what it printed."""


def call(*words, **options):
    """Output of a program of this machine."""
    options.setdefault("timeout", LIMIT)
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, words))}: {done.stdout[-2000:]}")
    return done.stdout


def why_not():
    """Why there can be no chroot here; empty: there can."""
    if os.geteuid() != 0:
        return "a chroot needs root"
    if shutil.which("unshare") is None or shutil.which("chroot") is None:
        return "there is no unshare and chroot"
    probe = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], capture_output=True, text=True)
    return f"no namespaces: {probe.stderr.strip()}" if probe.returncode else ""


def kept(name, make):
    """A folder that is made once; make(folder) fills it, mostly by downloads. Absent: it cannot."""
    folder = KEPT / name
    KEPT.mkdir(parents=True, exist_ok=True)
    with open(KEPT / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = KEPT / f"{name}.next"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            try:
                make(unfinished)
            except (Failed, OSError) as error:
                raise Absent(f"{name}: {error}") from error
            unfinished.rename(folder)
    return folder


def base():
    return kept("base", make_base)


def make_base(folder):
    prefix, reason = debs.unpacked("debootstrap")
    if reason:
        raise Absent(reason)
    environment = dict(debs.environment(prefix), DEBOOTSTRAP_DIR=str(prefix / "usr/share/debootstrap"))
    call("debootstrap", "--variant=minbase", "--include=python3-venv", "bookworm", folder, env=environment)
    call("chroot", folder, "apt-get", "clean")


class Debian:
    """One chroot, gone with the `with` block. `packages` is its folder /packages."""

    def __init__(self, folder, packages):
        self.root, self.packages = pathlib.Path(folder), packages

    def __enter__(self):
        call("cp", "-a", "--reflink=auto", base(), self.root)
        for name in ("packages", "srv/user"):
            (self.root / name).mkdir(parents=True)
        os.chown(self.root / "srv/user", USER, USER)
        return self

    def __exit__(self, *error):
        shutil.rmtree(self.root)

    def run(self, *words, user=USER, network=False, environment=()):
        """(exit code, what it printed). The processes that it has started end with it."""
        enter = ('mount --bind /dev "$0/dev" && mount -t proc proc "$0/proc" && mount --bind "$1" "$0/packages" &&'
                 ' user=$2 && shift 2 && exec chroot --userspec=$user:$user "$0" env -i -C /srv/user "$@"')
        if not network:
            enter = f"{sys.executable} {__file__} && {enter}"
        settings = [f"{name}={value}" for name, value in {**ENVIRONMENT, **dict(environment)}.items()]
        done = subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", *([] if network else ["--net"]), "sh", "-c", enter,
             str(self.root), str(self.packages), str(user), *settings, *map(str, words)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
        return done.returncode, done.stdout

    def ok(self, *words, **options):
        code, out = self.run(*words, **options)
        assert code == 0, f"{' '.join(map(str, words))} ended with {code}:\n{out[-3000:]}"
        return out

    def files(self):
        """What there is, but for homes and what apt and the loader write down."""
        without = ("srv", "packages", "proc", "dev", "sys", "tmp", "var/cache", "var/lib/dpkg", "var/lib/apt", "var/log",
                   "etc/ld.so.cache")
        found = {str(path.relative_to(self.root)) for path in self.root.rglob("*")}
        return {path for path in found if not any(path == one or path.startswith(one + "/") for one in without)}


def raise_loopback():
    """In a new network namespace it is down, and there may be no `ip` to raise it with."""
    import socket
    import struct
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as any_socket:
        set_flags, up_and_running = 0x8914, 0x41
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sH14x", b"lo", up_and_running))


if __name__ == "__main__":
    raise_loopback()
