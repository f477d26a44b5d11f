"""Which files are ours: everything but hidden folders, builds and runs. For the structure tests."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOT_OURS = {"build", "runs", "__pycache__"}


def source_files(*suffixes):
    """Path from the root of the repository -> text, for all files that end so (all: no suffix)."""

    def walk(folder):
        for path in sorted(folder.iterdir()):
            if path.name.startswith(".") or path.name in NOT_OURS or path.is_symlink():
                continue
            if path.is_dir():
                yield from walk(path)
            elif not suffixes or path.name.endswith(suffixes):
                yield path

    texts = {}
    for path in walk(ROOT):
        try:
            texts[str(path.relative_to(ROOT))] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # data, such as weights
        except FileNotFoundError:
            continue  # an editor's temporary file, gone again
    return texts
