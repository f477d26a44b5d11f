"""Holds every #include of ours against the table of allowed includes.

A new edge is a decision about the architecture: change the table here and the drawing in the README
in the same commit. Runs its own planted violations first, so that it cannot pass by being blind.
"""

import re
import sys

from source_files import source_files

# Folder: the folders that it may include from. Each may include from itself and from `framework`
# (its few top files). `launcher` is written as what each room may include directly; all that is
# below those rooms comes with them.
ROOMS = {
    "schedules": set(),
    "placement": set(),
    "framework": set(),
    "framework/fields": set(),
    "framework/net": {"framework/fields"},
    "framework/coding": {"framework/net"},
    "framework/trace": set(),
    "framework/store": {"framework/fields"},
    "framework/data": {"framework/fields", "framework/store"},
    "framework/tensors": {"framework/store"},
    "framework/sync": {"framework/coding", "framework/fields", "framework/net", "framework/store"},
    "framework/sync/methods": {"framework/coding", "framework/net", "framework/store", "framework/sync"},
    "framework/codec": {"kernels", "framework/coding", "framework/net", "framework/store", "framework/tensors", "framework/trace"},
    "kernels": set(),
    "models": {"kernels"},
}
ROOMS["stages"] = set(ROOMS)

LAUNCHER = {
    "base": {"framework/fields", "framework/net", "framework/store", "framework/sync", "framework/trace"},
    "tokenizer": {"base", "framework/data"},
    # Of the codecs only settings.h, which is a header without libtorch; nothing of them is linked.
    # Of the models only their plain descriptions, which are headers, too.
    "recipe": {"base", "framework/codec", "framework/data", "models", "schedules"},
    "hosts": {"recipe"},
    "run": {"hosts"},
    "cli": {"run", "tokenizer"},
    "plugin": {"recipe", "stages"},
    "planner": {"hosts", "placement", "plugin", "tokenizer"},
    "worker": {"planner", "run"},
    "compute": {"cli", "worker"},
}


def with_all_below(room):
    """What a launcher's room may include: what its row names, and what those may."""
    allowed = set()
    for name in LAUNCHER[room]:
        target = "launcher/" + name if name in LAUNCHER else name
        allowed |= {target} | (with_all_below(name) if name in LAUNCHER else ROOMS[name])
    return allowed


for name in LAUNCHER:
    ROOMS["launcher/" + name] = with_all_below(name)
ROOMS["launcher/package"] = set(ROOMS)  # the installed headers
# The worked examples of plugins: what <strait/plugin.h> names as public, as installed.
ROOMS["recipes"] = {"schedules", "models", "kernels", "framework/codec", "framework/sync"}
ROOMS["tests"] = set(ROOMS) - {"recipes"}

# Rooms that never see libtorch, directly or through what they include, so that ThreadSanitizer and
# a host's agent can do without it.
WITHOUT_TORCH = {"schedules", "placement", "framework", "framework/fields", "framework/net", "framework/coding", "framework/trace", "framework/sync", "framework/sync/methods",
                 "framework/store", "framework/data"} | {
    "launcher/" + name for name in LAUNCHER if name not in ("plugin", "planner", "worker", "compute")}
TORCH = re.compile(r"^(torch|ATen|c10)/")
# In headers only what is cheap to read; these bring in half of libtorch.
HEAVY = re.compile(r"^(torch/|ATen/ATen\.h|ATen/Functions\.h|ATen/ops/)")
# These bring in all of it, so they are read nowhere.
FORBIDDEN = re.compile(r"^torch/(torch|all|extension|script)\.h$")
# A library that only these know.
OWNERS = {
    re.compile(r"^toml\+\+/"): ("launcher/recipe/",),
    re.compile(r"^zmq(_addon)?\.h(pp)?$"): ("framework/net/", "tests/"),
    re.compile(r"^CLI/"): ("launcher/cli/", "tests/launcher/cli/"), re.compile(r"^cxxopts\.hpp$"): ("launcher/hosts/",),
}
# What the first column of a room's table of files says.
FILE_TABLE = re.compile(r"^\| (file|module|header) \|")
# A template that has one thread where it is compiled without OpenMP, as ours is.
ONE_THREAD = re.compile(r"\bat::parallel_for\(")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)


def room_of(path):
    """Its folder; of tests and recipes, which mirror others, the top one."""
    parts = path.split("/")
    if parts[0] in ("tests", "recipes"):
        return parts[0]
    return "/".join(parts[:-1])


def violations_of(path, text, headers=()):
    room = room_of(path)
    if room not in ROOMS:
        yield f"{path}: {room or 'the top level'} is no room; known: {', '.join(sorted(ROOMS))}"
        return
    first = INCLUDE.search(text)
    own = path.removesuffix(".cpp") + ".h"
    if path.endswith(".cpp") and own in headers and (not first or first.group(2) != own):
        yield f'{path}: the first include is its own "{own}", which shows that the header stands alone'
    for match in INCLUDE.finditer(text):
        where = f"{path}:{text.count(chr(10), 0, match.start(2)) + 1}"
        name = match.group(2)
        if match.group(1) == '"':
            target = room_of(name)
            if target not in ROOMS:
                yield f'{where}: "{name}" is not a full path from the root of the repository'
            elif target not in ROOMS[room] | {room, "framework"}:
                allowed = ", ".join(sorted(ROOMS[room])) or "no other room"
                yield f"{where}: {room} must not know {target} ({name}); it may know {allowed}"
            continue
        if TORCH.match(name) and room in WITHOUT_TORCH:
            yield f"{where}: {room} does without libtorch, but includes <{name}>"
        if FORBIDDEN.match(name):
            yield f"{where}: <{name}> reads all of libtorch; include what is used"
        elif HEAVY.match(name) and path.endswith(".h") and room != "tests":
            yield f"{where}: <{name}> in a header costs every reader seconds; <ATen/core/Tensor.h> is enough"
        for library, owners in OWNERS.items():
            if library.match(name) and not path.startswith(owners):
                yield f"{where}: <{name}> belongs into {' or '.join(owners)} only"
    if ONE_THREAD.search(text):
        yield f"{path}: at::parallel_for has one thread here; kernels/parallel.h has all of them"


def absent_files(page, text, paths):
    """Names in a room's tables of files that are no file of the room; what follows a colon is in the file."""
    room = page.rpartition("/")[0] + "/"
    in_table = False
    for number, line in enumerate(text.splitlines(), 1):
        in_table = line.startswith("|") and (in_table or bool(FILE_TABLE.match(line)))
        for name in re.findall(r"`([a-z][\w./-]*)(?:\.\*)?`", line.split("|")[1].split(":")[0]) if in_table else []:
            if not any(path == room + name or path.startswith((room + name + ".", room + name.rstrip("/") + "/")) for path in paths):
                yield f"{page}:{number}: {name} is no file of this room"


def torch_behind(path, files, seen=()):
    """How this file comes to read libtorch: the includes on the way, or None."""
    for _, name in INCLUDE.findall(files.get(path, "")):
        if TORCH.match(name):
            return [path, name]
        if name in files and name not in seen:
            seen = (*seen, name)
            if way := torch_behind(name, files, seen):
                return [path, *way]
    return None


def cycle_in(edges):
    done, path = set(), []

    def visit(room):
        if room in path:
            return path[path.index(room):] + [room]
        if room in done:
            return None
        path.append(room)
        for target in sorted(edges.get(room, ())):
            if found := visit(target):
                return found
        path.pop()
        done.add(room)
        return None

    for room in sorted(edges):
        if found := visit(room):
            return found
    return None


def edges_of(files):
    edges = {}
    for path, text in files.items():
        room = room_of(path)
        for kind, name in INCLUDE.findall(text):
            if kind == '"' and room_of(name) in ROOMS and room_of(name) != room:
                edges.setdefault(room, set()).add(room_of(name))
    return edges


def self_test():
    planted = {
        ("kernels/a.h", '#include "models/b.h"'): "kernels must not know models",
        ("schedules/a.cpp", '#include <vector>\n#include "framework/net/link.h"'): "a.cpp:2: schedules must not",
        ("framework/net/a.h", "#include <ATen/core/Tensor.h>"): "does without libtorch",
        ("models/a.h", "# include <ATen/ATen.h>"): "costs every reader",
        ("models/a.cpp", "#include <torch/torch.h>"): "reads all of libtorch",
        ("stages/a.cpp", "#include <toml++/toml.h>"): "belongs into launcher/recipe/ only",
        ("stages/a.cpp", '#include "chunk.h"'): "not a full path",
        ("stages/a.cpp", "at::parallel_for(0, 8, 1, work);"): "has one thread here",
        ("launcher/recipe/a.cpp", '#include "launcher/hosts/b.h"'): "launcher/recipe must not know launcher/hosts",
        ("launcher/hosts/a.cpp", '#include "launcher/run/b.h"'): "launcher/hosts must not know launcher/run",
        ("launcher/hosts/deep/a.cpp", ""): "is no room", ("tools/a.cpp", ""): "is no room",
    }
    for (path, text), expected in planted.items():
        found = list(violations_of(path, text))
        assert any(expected in line for line in found), f"blind to {path}: {text!r}, found {found}"
    late = '#include <vector>\n#include "stages/a.h"'
    assert any("stands alone" in line for line in violations_of("stages/a.cpp", late, {"stages/a.h"}))
    assert not list(violations_of("stages/a.cpp", '#include "models/b.h"\n#include <ATen/ATen.h>'))
    table = "| file | content |\n|---|---|\n| `a`, `b.h`: `c` | `d` |\n| `e.*` | |\n\n| word | |\n|---|---|\n| `f` | |\n"
    assert [line.split()[1] for line in absent_files("net/README.md", table, {"net/b.h", "store/a.h"})] == ["a", "e"]
    assert not list(absent_files("net/README.md", table, {"net/a.cpp", "net/b.h", "net/e.h"}))
    hidden = {"launcher/recipe/a.h": '#include "models/b.h"', "models/b.h": "#include <ATen/core/Tensor.h>"}
    assert torch_behind("launcher/recipe/a.h", hidden) == ["launcher/recipe/a.h", "models/b.h", "ATen/core/Tensor.h"]
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == ["a", "b", "c", "a"]
    assert cycle_in({"a": {"b", "c"}, "b": {"c"}}) is None


def main():
    self_test()
    files = source_files(".h", ".cpp", ".cu", ".cuh")
    assert len(files) > 50, f"only {len(files)} files found"
    found = [f"{path} does without libtorch, but reads it: " + " -> ".join(way)
             for path in sorted(files) if room_of(path) in WITHOUT_TORCH and (way := torch_behind(path, files))]
    found += [line for path, text in sorted(files.items()) for line in violations_of(path, text, files)]
    pages = source_files(".md")
    paths = set(source_files())
    found += [line for page in sorted(pages) if room_of(page) in ROOMS for line in absent_files(page, pages[page], paths)]
    if cycle := cycle_in(edges_of(files)):
        found.append("the rooms know each other in a circle: " + " -> ".join(cycle))
    print("\n".join(found) or f"{len(files)} files keep to their rooms")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
