"""Every C++ file is as clang-format leaves it. Put it right with:  clang-format -i FILE"""

import shutil
import subprocess
import sys

from source_files import ROOT, source_files

SKIPPED = 77


def complaints(clang_format, names, text=None):
    command = [clang_format, "--dry-run", "-Werror", "--style=file"]
    command += ["--assume-filename=planted.cpp"] if text else names
    result = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True)
    return result.stderr if result.returncode else ""


def main():
    clang_format = shutil.which("clang-format")
    if not clang_format:
        print("clang-format is not installed")
        return SKIPPED
    assert complaints(clang_format, [], "int  f( ){return 1 ;}\n"), "blind to a planted violation"
    assert not complaints(clang_format, [], "int f() { return 1; }\n")
    names = list(source_files(".h", ".cpp", ".cu", ".cuh"))
    found = complaints(clang_format, names)
    print(found or f"{len(names)} files are formatted")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
