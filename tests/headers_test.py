"""A header stands alone: it compiles as the first and only include of a file.

The precompiled header of the build would hide what is missing. A compiler takes a second for each header, most
of it for the standard library. So only those without a source of their own are compiled; the source of every
other one includes it first (rooms_test.py), and that a header includes what declares the names of the standard
library that it uses is seen in its text. Those of a room are compiled together, and all that read libtorch, for it takes
ten seconds to read: one that includes less comes before one that includes more. With STRAIT_CAMPAIGNS=1 each of them is
compiled alone, and all headers that do not read libtorch.
"""

import collections
import concurrent.futures
import hashlib
import os
import pathlib
import re
import subprocess
import sys

from compile_flags import room_flags
from source_files import ROOT, included_by, reads_torch, source_files

BUILD = pathlib.Path(os.environ.get("STRAIT_BUILD", ROOT / "build/release"))

CAMPAIGN = bool(os.environ.get("STRAIT_CAMPAIGNS"))
# Headers whose names tell them, and what declares the names that do not.
NAMED = {"array", "atomic", "chrono", "deque", "filesystem", "future", "map", "mutex", "optional", "set", "span", "string", "string_view",
         "thread", "tuple", "unordered_map", "variant", "vector"}
DECLARED = {"pair": "utility", "function": "functional", "unique_ptr": "memory", "shared_ptr": "memory", "weak_ptr": "memory"}
DECLARED |= {f"{sign}int{bits}_t": "cstdint" for sign in ("", "u") for bits in (8, 16, 32, 64)}
DECLARED |= {name: name for name in NAMED}


def missing_includes(text, included):
    names = re.findall(r"\bstd::(\w+)", re.sub(r"//.*", "", text))
    missing = {DECLARED[name] for name in names if name in DECLARED} - included
    if "nlohmann::" in text and not {"nlohmann/json.hpp", "nlohmann/json_fwd.hpp"} & included:
        missing.add("nlohmann/json.hpp")
    return sorted(missing)


def complaint(text, flags):
    compiler = os.environ.get("CXX", "c++")
    result = subprocess.run([compiler, "-fsyntax-only", "-x", "c++", *flags, "-"], cwd=ROOT, input=text,
                            capture_output=True, text=True)
    return result.stderr if result.returncode else ""


def main():
    assert complaint("std::string f();\n", ["-std=c++20"]), "blind to a missing include"
    assert not complaint("#include <string>\nstd::string f();\n", ["-std=c++20"])
    text = "std::string f(std::uint8_t, nlohmann::json);  // std::map\n"
    assert missing_includes(text, {"vector"}) == ["cstdint", "nlohmann/json.hpp", "string"]
    assert missing_includes(text, {"cstdint", "string", "nlohmann/json_fwd.hpp"}) == []
    files, flags = source_files(".h", ".cpp"), room_flags(BUILD)
    scratch = BUILD / "headers"
    scratch.mkdir(parents=True, exist_ok=True)

    def misses_names(header):
        missing = missing_includes(files[header], included_by(header, files))
        return missing and f"{header} uses names of {', '.join(missing)}, which it includes neither itself nor through another"

    def check(unit):
        room = unit[0].rsplit("/", 1)[0]
        options = flags.get(room, flags["schedules"])
        uses = set(unit).union(*(included_by(header, files) for header in unit))
        seen = [*unit, *options, *(files[name] for name in sorted(uses) if name in files)]
        digest = hashlib.sha256("\0".join(seen).encode()).hexdigest()
        passed = scratch / (unit[0].replace("/", "_") + ".passed")
        if passed.exists() and passed.read_text() == digest:
            return ""
        found = complaint("".join(f'#include "{header}"\n' for header in unit), options)
        if not found:
            passed.write_text(digest)
        return found

    headers = [path for path in files if path.endswith(".h") and not path.startswith("tests/")
               and (path.rsplit("/", 1)[0] in flags or path.startswith("framework/mutex"))]
    compiled = [header for header in headers
                if header.removesuffix(".h") + ".cpp" not in files or (CAMPAIGN and not reads_torch(header, files))]
    together = collections.defaultdict(list)
    for header in sorted(compiled, key=lambda header: len(included_by(header, files))):
        unit = header if CAMPAIGN else "libtorch" if reads_torch(header, files) else header.rsplit("/", 1)[0]
        together[unit].append(header)
    units = sorted(together.values(), key=lambda unit: not reads_torch(unit[0], files))  # the slowest first
    found = list(filter(None, map(misses_names, headers)))
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        found += filter(None, pool.map(check, units))
    print("\n".join(found) or f"{len(headers)} headers stand alone")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
