"""Which files are ours, and what they include. For the structure tests."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^#include (["<])([^">]+)[">]', re.MULTILINE)
NOT_OURS = {"build", "runs", "__pycache__"}


def walk(folder):
    """All files but those in hidden folders, builds and runs."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in NOT_OURS or path.is_symlink():
            continue
        if path.is_dir():
            yield from walk(path)
        else:
            yield path


def compiled_files(root=ROOT):
    """Programs, libraries and objects, which no source tree holds."""
    found = []
    for path in walk(root):
        try:
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    found.append(str(path.relative_to(root)))
        except FileNotFoundError:
            continue  # as below
    return found


def source_files(*suffixes):
    """Path from the root of the repository -> text of all files that end so (all: no suffix)."""
    texts = {}
    for path in walk(ROOT):
        if suffixes and not path.name.endswith(suffixes):
            continue
        try:
            texts[str(path.relative_to(ROOT))] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # data, such as weights
        except FileNotFoundError:
            continue  # an editor's temporary file, gone again
    return texts


def included_by(path, files, seen=None):
    """Everything that the file includes, directly or not: names of ours and of others."""
    seen = set() if seen is None else seen
    for _, name in INCLUDE.findall(files.get(path, "")):
        if name not in seen:
            seen.add(name)
            included_by(name, files, seen)
    return seen


def reads_torch(path, files):
    return any(name.startswith(("ATen/", "c10/", "torch/")) for name in included_by(path, files))
