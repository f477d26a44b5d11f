"""A control group (of version 1 or 2) with limits, as a container has them. Needs root."""

import contextlib
import errno
import os
import pathlib
import time

ROOT = pathlib.Path("/sys/fs/cgroup")
PERIOD = 20_000  # microseconds; the kernel gives no less than 1,000 of them


def usable():
    return os.geteuid() == 0 and os.access(ROOT / "cpu" if (ROOT / "cpu").is_dir() else ROOT, os.W_OK)


class ControlGroup:
    """A share of the time of cores, and bytes of memory."""

    def __init__(self, name, cores=None, memory=None):
        first = (ROOT / "cpu").is_dir()
        self.folders = []
        if cores is not None:
            quota = int(PERIOD * cores)
            if first:
                self.make("cpu", name, {"cpu.cfs_period_us": PERIOD, "cpu.cfs_quota_us": quota})
            else:
                self.make("", name, {"cpu.max": f"{quota} {PERIOD}"})
        if memory is not None:
            if first:
                self.make("memory", name, {"memory.limit_in_bytes": memory})
            else:
                self.make("", name, {"memory.max": memory})

    def make(self, controller, name, limits):
        folder = ROOT / controller / f"strait-{os.getpid()}-{name}"
        folder.mkdir(exist_ok=True)
        if folder not in self.folders:
            self.folders.append(folder)
        for file, value in limits.items():
            (folder / file).write_text(str(value))

    def add(self, pid):
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def close(self):
        for folder in self.folders:
            for pid in (folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    (folder.parent / "cgroup.procs").write_text(pid)
            self.remove(folder)

    def remove(self, folder):
        """A process that has just ended leaves its group a moment later."""
        deadline = time.monotonic() + 10
        while True:
            try:
                return folder.rmdir()
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
