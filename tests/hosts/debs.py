"""Programs of the distribution that a test needs and the machine lacks: their packages, downloaded
once and unpacked below the build directory. Nothing is installed.

Not a test itself. `unpacked("openssh-server")` gives (prefix, None), or (None, why not): then the
test is skipped with that reason. Programs are in prefix/usr/{bin,sbin}; `environment(prefix)` lets
them find their own libraries.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("STRAIT_BUILD", ROOT / "build" / "release"))
# One of apt's announcements "Inst name (version …)"; those with "[version]" replace something that
# the machine has, and what it has will do.
NEW_PACKAGE = re.compile(r"^Inst (\S+) \(", re.MULTILINE)
DOWNLOAD_LIMIT = 300  # seconds
UNPACK_LIMIT = 120


def unpacked(*packages):
    """The packages with all that they depend on and the machine lacks."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            return None, f"there is no {tool} here to get {' '.join(packages)} with"
    name = hashlib.sha256(" ".join(sorted(packages)).encode()).hexdigest()[:12]
    prefix = BUILD / "debs" / f"{packages[0]}-{name}"
    if prefix.exists():
        return prefix, None
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        # Tests that run at the same time download once.
        with open(prefix.parent / f"{prefix.name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not prefix.exists():
                download_and_unpack(packages, prefix)
        return prefix, None
    except subprocess.CalledProcessError as error:
        words = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        return None, f"{' '.join(packages)} cannot be had: {error.cmd[0]}: {words[-1]}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"{' '.join(packages)} cannot be had: {error}"


def download_and_unpack(packages, prefix):
    plan = call("apt-get", "-s", "install", "--no-install-recommends", *packages, seconds=60)
    # What is installed already is not announced, but was asked for.
    wanted = sorted({*packages, *NEW_PACKAGE.findall(plan)})
    unfinished = prefix.with_name(f"{prefix.name}.next")
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(unfinished)
    archives = unfinished / "archives"
    archives.mkdir(parents=True)
    call("apt-get", "-q", "download", *wanted, seconds=DOWNLOAD_LIMIT, folder=archives)
    for archive in sorted(archives.glob("*.deb")):
        call("dpkg-deb", "-x", str(archive), str(unfinished), seconds=UNPACK_LIMIT)
    shutil.rmtree(archives)
    unfinished.rename(prefix)


def call(*words, seconds, folder=None):
    environment = dict(os.environ, LC_ALL="C", DEBIAN_FRONTEND="noninteractive")
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds)
    done.check_returncode()
    return done.stdout


def library_folders(prefix):
    """Where the packages keep shared libraries: the multiarch folders, and those of plugins."""
    found = {path.parent for path in prefix.glob("**/*.so*")}
    return sorted(str(folder) for folder in found)


def environment(prefix, base=None):
    """The environment in which the unpacked programs find each other and their libraries."""
    words = dict(os.environ if base is None else base)
    programs = [str(prefix / folder) for folder in ("usr/sbin", "usr/bin", "sbin", "bin")]
    words["PATH"] = ":".join([*programs, words.get("PATH", os.defpath)])
    libraries = library_folders(prefix)
    if "LD_LIBRARY_PATH" in words:
        libraries.append(words["LD_LIBRARY_PATH"])
    words["LD_LIBRARY_PATH"] = ":".join(libraries)
    return words
