"""A header stands alone: it compiles as the first and only include of a file.

The precompiled header of the build would hide what is missing. Headers that read libtorch bring all of
the standard library along and take seconds each, so of those only the ones without a source of their
own are compiled; the source of every other one includes it first (rooms_test.py).
"""

import concurrent.futures
import hashlib
import os
import pathlib
import subprocess
import sys

from compile_flags import room_flags
from source_files import ROOT, included_by, reads_torch, source_files

BUILD = pathlib.Path(os.environ.get("STRAIT_BUILD", ROOT / "build/release"))


def complaint(text, flags):
    compiler = os.environ.get("CXX", "c++")
    result = subprocess.run([compiler, "-fsyntax-only", "-x", "c++", *flags, "-"], cwd=ROOT, input=text,
                            capture_output=True, text=True)
    return result.stderr if result.returncode else ""


def main():
    assert complaint("std::string f();\n", ["-std=c++20"]), "blind to a missing include"
    assert not complaint("#include <string>\nstd::string f();\n", ["-std=c++20"])
    files, flags = source_files(".h", ".cpp"), room_flags(BUILD)
    scratch = BUILD / "headers"
    scratch.mkdir(parents=True, exist_ok=True)

    def check(header):
        room = header.rsplit("/", 1)[0]
        uses = included_by(header, files)
        if reads_torch(header, files) and header.removesuffix(".h") + ".cpp" in files:
            return ""
        options = flags.get(room, flags["schedules"])
        seen = [header, *options, *(files[name] for name in sorted(uses | {header}) if name in files)]
        digest = hashlib.sha256("\0".join(seen).encode()).hexdigest()
        passed = scratch / (header.replace("/", "_") + ".passed")
        if passed.exists() and passed.read_text() == digest:
            return ""
        found = complaint(f'#include "{header}"\n', options)
        if not found:
            passed.write_text(digest)
        return found

    headers = [path for path in files if path.endswith(".h") and not path.startswith("tests/")
               and (path.rsplit("/", 1)[0] in flags or path.startswith("framework/mutex"))]
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        found = [text for text in pool.map(check, headers) if text]
    print("\n".join(found) or f"{len(headers)} headers stand alone")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
