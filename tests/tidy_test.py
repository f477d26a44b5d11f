"""clang-tidy and clang's thread-safety analysis over every room.

libtorch's headers take longer to read and to check than all of ours, so all rooms that read them are one
unit, which includes their sources; two units at a time; and a unit whose files and settings passed before is
not checked again. Sources of one room must therefore not use one name for two things, not even in their
unnamed namespaces. Names of sources or rooms on the command line check these only.
"""

import concurrent.futures
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

from compile_flags import room_flags
from source_files import ROOT, reads_torch, source_files

SKIPPED = 77
BUILD = pathlib.Path(os.environ.get("STRAIT_BUILD", ROOT / "build/release"))
SCRATCH = BUILD / "tidy"
# A unit is the sources of many rooms: most of the time goes into the headers of libtorch, and then of nlohmann::json.
UNITS = ["kernels+models+stages+framework/tensors+framework/codec+launcher/plugin+launcher/planner+launcher/worker+launcher/compute",
         "launcher/base+launcher/tokenizer+launcher/recipe+launcher/hosts+launcher/run+launcher/cli",
         "schedules+placement+framework/net+framework/store+framework/data+framework/fields+framework/coding+framework/sync+framework/trace"]  # the slowest first
ALWAYS = set(UNITS[1:])  # what a build without libtorch has, too
# Highway's sources read themselves again for every instruction set; one of them is enough here.
ONE_INSTRUCTION_SET = ["-DHWY_COMPILE_ONLY_STATIC"]
# More than half of the time where it sees all functions of libtorch's headers.
NOT_BESIDE_TORCH = "-performance-unnecessary-value-param"
# What finds mistakes that no compiler finds. All checks of .clang-tidy take three times as long, for clang-tidy looks at
# the headers of libraries, too; they run with STRAIT_CAMPAIGNS=1 (`./strait test --all`).
ALWAYS_CHECKED = ["clang-diagnostic-*", "bugprone-use-after-move", "readability-identifier-naming"]
CHECKS = "" if os.environ.get("STRAIT_CAMPAIGNS") else ",".join(["-*", *ALWAYS_CHECKED])
THREAD_SAFETY = ["-Wthread-safety", "-Wno-unknown-warning-option", "-Wno-unused-command-line-argument"]


def unit_of(sources):
    """One source that includes all others; a program's main is one of several here."""
    lines = []
    for path in sources:
        main = re.sub(r"\W", "_", path) if path.endswith("_program.cpp") else ""
        lines += [f"#define main {main}"] if main else []
        lines += [f'#include "{ROOT / path}"  // NOLINT(bugprone-suspicious-include)']
        lines += ["#undef main"] if main else []
    return "\n".join(lines) + "\n"


def tidy(name, text, flags, checks=CHECKS):
    """What clang-tidy has to say, without its chatter; empty when all is well."""
    unit = SCRATCH / (name + ".cpp")
    unit.write_text(text)
    ours = f"^({re.escape(str(ROOT))}/(schedules|placement|framework|kernels|models|stages|launcher)/|{re.escape(str(unit))})"
    command = ["clang-tidy", "--quiet", f"--config-file={ROOT / '.clang-tidy'}", f"--header-filter={ours}", f"--checks={checks}", str(unit), "--"]
    result = subprocess.run(command + ["-x", "c++"] + flags + ONE_INSTRUCTION_SET + THREAD_SAFETY, cwd=ROOT, capture_output=True, text=True)
    if result.returncode == 0 and "warning:" not in result.stdout:
        return ""
    return result.stdout.replace(f"{ROOT}/", "") or result.stderr


def library_of(path):
    """The room whose library has this source: framework/sync has methods in a folder of their own."""
    folder = pathlib.PurePosixPath(path).parent
    return str(folder.parent if folder.name == "methods" else folder)


def sources_of(unit, files):
    return sorted(path for path in files if path.endswith(".cpp") and {path, library_of(path)} & set(unit.split("+")))


def check(unit, files, flags):
    sources = sources_of(unit, files)
    assert sources, f"{unit}: no such source or room"
    options = [flag for room in sorted({library_of(path) for path in sources}) for flag in flags.get(room, [])]
    text = unit_of(sources)
    checks = CHECKS or (NOT_BESIDE_TORCH if any(reads_torch(path, files) for path in sources) else "")
    seen = [text, checks, (ROOT / ".clang-tidy").read_text(), " ".join(options), pathlib.Path(__file__).read_text()]
    seen += [content for path, content in files.items() if path in sources or path.endswith(".h")]
    digest = hashlib.sha256("\0".join(seen).encode()).hexdigest()
    name = re.sub(r"\W", "_", unit)
    passed = SCRATCH / (name + ".passed")
    if passed.exists() and passed.read_text() == digest:
        return unit, len(sources), ""
    found = tidy(name, text, options, checks)
    if not found:
        passed.write_text(digest)
    return unit, len(sources), found


def self_test():
    planted = {
        "bugprone-use-after-move": "#include <string>\n#include <utility>\n"
                                   "void take(std::string); void f(std::string a) { take(std::move(a)); take(a); }\n",
        "thread-safety-analysis": f'#include "{ROOT}/framework/mutex.h"\n'
                                  "struct Count { strait::Mutex mutex; int n STRAIT_GUARDED_BY(mutex) = 0; };\n"
                                  "int f(Count& count) { return count.n; }\n",
        "readability-identifier-naming": "int NotOurs() { return 1; }\n",
    }
    if not CHECKS:
        planted["modernize-use-override"] = "struct A { virtual void f(); }; struct B : A { virtual void f(); };\n"
    for check_name, text in planted.items():
        found = tidy("planted", text, ["-std=c++20"])
        assert check_name in found, f"blind to {check_name}: {found}"
    assert not tidy("planted", "int f() { return 1; }\n", ["-std=c++20"])


def main():
    if not shutil.which("clang-tidy"):
        print("clang-tidy is not installed")
        return SKIPPED
    SCRATCH.mkdir(parents=True, exist_ok=True)
    self_test()
    files = source_files(".h", ".cpp")
    flags = room_flags(BUILD)
    units = sys.argv[1:] or [unit for unit in UNITS if unit.split("+")[0] in flags]
    checked = {path for unit in UNITS for path in sources_of(unit, files)}
    # Examples are no room: their own tests compile them with nothing but what is installed.
    other = ("tests/", "recipes/")
    missed = [path for path in files if path.endswith(".cpp") and not path.startswith(other) and path not in checked]
    assert not missed, f"in no unit: {missed}"
    assert sys.argv[1:] or set(units) >= ALWAYS, f"the build in {BUILD} has only {sorted(flags)}"
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        results = list(pool.map(lambda unit: check(unit, files, flags), units))
    for unit, count, found in results:
        print(f"{unit}: {count} sources " + (f"\n{found}" if found else "are clean"))
    return 1 if any(found for _, _, found in results) else 0


if __name__ == "__main__":
    sys.exit(main())
