"""The commands strait and strait-stage of the wheel: each becomes the program of its name in bin."""

import importlib.metadata
import importlib.util
import os
import pathlib
import sys

BIN = pathlib.Path(__file__).resolve().parent / "bin"
TORCH = "2.13"  # what pyproject.toml depends on, for who installs another one later


def strait():
    _become("strait")


def strait_stage():
    _become("strait-stage")


def _become(name):
    found = importlib.util.find_spec("torch")
    version = importlib.metadata.version("torch") if found else "none"
    if not version.startswith(TORCH + "."):
        print(f"strait: this build needs torch {TORCH}, and {sys.executable} has {version}; type: "
              f"{sys.executable} -m pip install 'torch=={TORCH}.*'", file=sys.stderr)
        sys.exit(10)
    libraries = pathlib.Path(found.origin).resolve().parent / "lib"
    # Programs find the torch that lies next to this package; another one they are told of.
    if libraries != BIN.parents[1] / "torch/lib":
        others = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = f"{libraries}:{others}" if others else str(libraries)
    os.environ.setdefault("STRAIT_PYTHON", sys.executable)
    os.execv(BIN / name, [name, *sys.argv[1:]])
