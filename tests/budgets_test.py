"""Holds files and functions to their sizes, and names and texts to the project's rules.

Raise a budget only in a commit that says why. Runs its own planted violations first. With a folder of sources of C++
(`budgets_test.py DIR`) it only prints how these divide code into files: to compare other projects with this one.
"""

import os
import pathlib
import re
import shutil
import sys
import tempfile

from source_files import compiled_files, source_files

HEADER_LINES = 150
SOURCE_LINES = 350  # tests may be longer: they are read one case at a time
LISTS = {
    "launcher/run/run_hosts.cpp": 420,  # one class: bringing hosts up, and again for a replica that rejoins
    "framework/trace/step_metrics.h": 250,  # a row a metric, and nothing else
    "launcher/hosts/host_agent.cpp": 480,  # one agent: requests, processes with their logs, and files
    "launcher/hosts/host_agents.cpp": 430,  # one class: requests that await replies, processes, losses
    "launcher/hosts/host_agents.h": 185,  # the same class; requests with their types of replies are templates
    "launcher/hosts/stage_command.cpp": 360,  # one program: over ssh, by a token, as the agent of a joined host
    # One class each, which a budget had cut in two.
    "launcher/run/coordinator.cpp": 490,  # with what WorkerInbox and InferenceDriver did, and ends on request
    "framework/net/link_protocol.cpp": 415,  # one state machine
    "framework/net/link_protocol.h": 175,
    "framework/store/checkpoint.cpp": 370,  # one protocol: commit, choose, and which checkpoints stay
    "framework/sync/sync_rounds.cpp": 380,
    "framework/sync/packet.cpp": 420,  # the sections of a packet, which no other source sees, and its values
    "framework/codec/activation_cache.cpp": 370,
    "launcher/planner/sync_offer.cpp": 370,  # one forecast: of rounds, lines and consensus
    "launcher/planner/forecast_text.cpp": 360,  # one text: what a plan says of a run's time
    "kernels/expert_products.cpp": 365,  # forward and backward of one layer
    "schedules/simulate.cpp": 425,  # one simulation: actions, messages, and the threads of links
    "stages/replica_sync.cpp": 475,
    "stages/stage.cpp": 380,  # constructs all parts, with the names of what Muon updates
    "stages/adamw.cpp": 400,  # updates of whole parameters, and in parts: narrow, off-loaded or by Muon; of a share
    "launcher/recipe/plan.h": 175,  # one value: the plan, with the parts of a step
    "launcher/run/control_message.h": 175,  # all messages of one link
    "launcher/recipe/recipe.h": 160,  # one value: the recipe
    "launcher/recipe/recipe_values.h": 160,
    "launcher/recipe/recipe_rules.cpp": 380,  # rules about several keys, one below the other
    "stages/stage_loop.cpp": 355,  # one loop
    "framework/sync/methods/cocktail.cpp": 450,  # one class, with the forecast that a budget had cut off
    "framework/sync/methods/powersgd.cpp": 370,  # one class and the arithmetic of its factors
}
FUNCTION_LINES = 70  # tests too: a case that long proves too many things
PAGE_COLUMNS = 120  # of a page of Markdown, tables too

CPP = (".h", ".cpp", ".cu", ".cuh")
TEXT = CPP + (".py", ".sh", ".md", ".txt", ".cmake", ".in", ".toml", ".json", ".jsonl", "strait")

NAMELESS = {"util", "utils", "utility", "utilities", "common", "helper", "helpers", "misc", "stuff"}
PRODUCT = ("framework/", "kernels/", "launcher/", "models/", "placement/", "schedules/", "stages/")
# What divides code into files may get better, and not worse: least and most.
HOUSE = {
    "headers with one user": (0, 71),
    "lines of includes and namespaces, %": (0, 7.3),
    "comments in sources, %": (4.5, 100),
    "kinds of messages": (0, 40),
}
NAMELESS_TYPES = re.compile(
    r"\b(?:class|struct)\s+(\w*(?:Manager|Context|Engine|Helper|Helpers|Util|Utils))\b\s*(?:final\s*)?[:{]")
# Spelled in halves, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX", "HA" + "CK"]) + r")\b")
MACHINE_PATHS = re.compile("(?<![\\w.~-])/(" + "|".join(["wo" + "rk", "ro" + "ot", "ho" + "me", "opt/" + "(wheels|pypi)"]) + ")/")
SLEEPS = re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep)\s*\(|::sleep\s*\(")
CATCH_ALL = re.compile(r"catch\s*\(\s*\.\.\.\s*\)\s*\{")
HANDLED = re.compile(r"\bthrow\b|current_exception|terminate|abort|_exit")

COMMENT_OR_LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\((?:.*?)\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)


def bare(text):
    """The code without comments, literals and preprocessor lines, line numbers kept."""

    def blank(match):
        return re.sub(r"[^\n]", " ", match.group())

    text = COMMENT_OR_LITERAL.sub(blank, text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.MULTILINE)


def functions_of(text):
    """(name, first line, number of lines) of every function with a body, from signature to brace."""
    code, line, start, depth_inside = bare(text), 1, 0, 0
    scopes = []  # of open braces outside functions
    statement_line, name = None, ""
    opened = None
    for position, char in enumerate(code):
        if char == "\n":
            line += 1
        elif opened is not None:
            depth_inside += {"{": 1, "}": -1}.get(char, 0)
            if depth_inside == 0:
                yield name, opened, line - opened + 1
                opened, start, statement_line = None, position + 1, None
        elif char == "{":
            head = code[start:position]
            scope = re.search(r"\b(namespace|enum|extern)\b", head) or (
                re.search(r"\b(class|struct|union)\b", head) and not re.search(r"\)\s*(const|override|noexcept|final|\s)*$", head))
            if "(" in head and not scope:
                opened, depth_inside = statement_line, 1
                names = re.findall(r"([\w:~]+)\s*\(([^()]*)", head) or [("a function", "")]
                name = f"{names[0][0]}({names[0][1].strip()})" if names[0][0].startswith("TEST") else names[0][0]
            else:
                scopes.append(char)
                start, statement_line = position + 1, None
        elif char in ";}" or (char == ":" and re.search(r"\b(public|private|protected)\s*$", code[start:position])):
            start, statement_line = position + 1, None
        elif statement_line is None and not char.isspace():
            statement_line = line


def violations_of(path, text):
    lines = text.count("\n") + (not text.endswith("\n"))
    if path.endswith(CPP):
        is_header = path.endswith((".h", ".cuh"))
        limit = LISTS.get(path, HEADER_LINES if is_header else SOURCE_LINES)
        if lines > limit and (is_header or not path.startswith("tests/")):
            yield f"{path}: {lines} lines, {limit} allowed; what is the second thing that it does?"
        for name, first, length in functions_of(text):
            if length > FUNCTION_LINES:
                yield f"{path}:{first}: {name} has {length} lines, {FUNCTION_LINES} allowed"
        # Highway reads these once per instruction set.
        if path.endswith("-inl.h"):
            if "== defined(HWY_TARGET_TOGGLE)\n" not in text:
                yield f"{path}:1: a header for every instruction set is guarded by HWY_TARGET_TOGGLE"
        elif path.endswith(".h") and not text.startswith("#pragma once\n"):
            yield f"{path}:1: a header starts with #pragma once"
        for match in NAMELESS_TYPES.finditer(bare(text)):
            yield f"{path}: {match.group(1)} says nothing; name it after what it is"
        for match in CATCH_ALL.finditer(bare(text)):
            if not HANDLED.search(bare(text)[match.end():match.end() + 600].split("\n  }\n")[0]):
                yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: catch (...) swallows what it catches"
        if path.endswith(".h") and re.search(r"^\s*using namespace", text, re.MULTILINE):
            yield f"{path}: using namespace in a header"
    if path.startswith("tests/") and path.endswith(CPP) and (match := SLEEPS.search(bare(text))):
        yield f"{path}: {match.group().strip()} in a test; wait for what is awaited, with a deadline"
    for part in re.split(r"[/.]", path):
        if part.lower() in NAMELESS:
            yield f"{path}: the name {part} says nothing; name it after what is in it"
    for number, line in enumerate(text.splitlines(), 1):
        if found := UNFINISHED.search(line):
            yield f"{path}:{number}: {found.group()}: finish it, or write it where work is planned"
        if found := MACHINE_PATHS.search(line):
            yield f"{path}:{number}: {found.group()}… is a path of one machine"
        if path.endswith(".md") and len(line) > PAGE_COLUMNS:
            yield f"{path}:{number}: {len(line)} columns, {PAGE_COLUMNS} allowed; wrap it, or make the table a list"


def share(part, whole):
    return round(100 * part / max(whole, 1), 2)


def house_of(files):
    """How C++ is divided into files: {path: text} -> {measure: value}. Headers with one user are part of it."""
    headers = [path for path in files if path.endswith((".h", ".hpp", ".cuh"))]
    users = {}
    for path, text in files.items():
        for name in re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', text, re.MULTILINE):
            users.setdefault(os.path.basename(name), []).append((name, path))

    def users_of(header):
        stem = header.rpartition(".")[0]
        return {path for name, path in users.get(os.path.basename(header), ())
                if header.endswith(name) and path.rpartition(".")[0] != stem}

    lines = [line for text in files.values() for line in text.splitlines()]
    own = [line for path, text in files.items() if path not in headers for line in text.splitlines()]
    types = sum(len(re.findall(r"\b(?:class|struct|enum)\s+\w[^;(){}]*\{", bare(text))) for text in files.values())
    messages = re.findall(r"using \w*Message =\s*std::variant<([^;]*)>;", "\n".join(files.values()))
    return {
        "headers": len(headers),
        "sources": len(files) - len(headers),
        "headers with one user": sum(len(users_of(header)) == 1 for header in headers),
        "lines": len(lines),
        "types in 1,000 lines": round(1000 * types / max(len(lines), 1), 1),
        "lines of includes and namespaces, %": share(
            sum(bool(re.match(r"\s*#\s*(include|pragma once)|namespace .*\{|\}\s*// namespace", line)) for line in lines), len(lines)),
        "comments in sources, %": share(sum(line.lstrip().startswith("//") for line in own), len(own)),
        "kinds of messages": sum(listed.count(",") + 1 for listed in messages),
    }


def worse_than_held(measured):
    for name, (least, most) in HOUSE.items():
        if not least <= measured[name] <= most:
            yield f"{name}: {measured[name]}, but {least} to {most} are allowed; join what belongs together"


def lines_by_room(files):
    rooms = {}
    for path, text in files.items():
        rooms[os.path.dirname(path)] = rooms.get(os.path.dirname(path), 0) + text.count("\n")
    return rooms


def self_test():
    house = house_of({"a/b.h": '#pragma once\nstruct B {\n};\n', "a/b.cpp": '#include "a/b.h"\n// why\nint b;\n',
                      "a/c.cpp": '#include "a/b.h"\nusing AMessage = std::variant<B, int>;\n'})
    assert house["headers with one user"] == 1 and house["kinds of messages"] == 2 and house["types in 1,000 lines"] == 125
    assert house["comments in sources, %"] == 20 and house["lines of includes and namespaces, %"] == 37.5, house
    long_body = "  f();\n" * FUNCTION_LINES
    planted = {
        ("models/a.h", "#pragma once\n" + "\n" * HEADER_LINES): "151 lines, 150 allowed",
        ("models/a.cpp", "\n" * (SOURCE_LINES + 1)): "351 lines",
        ("models/b.cpp", f"namespace a {{\nint C::g(int x)\n    const {{\n{long_body}}}\n}}"): "b.cpp:2: C::g has 73 lines",
        ("models/c.cpp", f"struct S {{\n  int a;\n  S() : a(1) {{\n{long_body}}}\n}};"): "c.cpp:3: S has 72 lines",
        ("tests/a/b_test.cpp", f"TEST(Link, Holds) {{\n{long_body}}}\n"): "TEST(Link, Holds) has 72 lines",
        ("models/b.h", "int x;\n"): "starts with #pragma once",
        ("models/b-inl.h", "#pragma once\n"): "is guarded by HWY_TARGET_TOGGLE",
        ("models/d.cpp", "class LinkManager final : Base {};\n"): "LinkManager says nothing",
        ("models/e.cpp", "void f() {\n  try {\n  } catch (...) {\n  }\n}\n"): "swallows",
        ("tests/a/c_test.cpp", "void f() { std::this_thread::sleep_for(x); }"): "sleep_for",
        ("models/string_utils/a.cpp", ""): "",
        ("models/utils.cpp", ""): "name utils says nothing",
        ("README.md", "a TO" + "DO\n"): "finish it",
        ("README.md", "see /ho" + "me/x"): "path of one machine",
        ("docs/a.md", "ü" * PAGE_COLUMNS + "\n| " + "a" * PAGE_COLUMNS + " |\n"): "a.md:2: 124 columns",
    }
    for (path, text), expected in planted.items():
        found = list(violations_of(path, text))
        assert not expected or any(expected in line for line in found), f"blind to {path}, found {found}"
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(os.path.realpath(sys.executable), pathlib.Path(folder, "probe"))
        assert compiled_files(pathlib.Path(folder)) == ["probe"]
    clean = ('#pragma once\nnamespace a {\nclass S {\n public:\n  explicit S(int a) : a_{a} {}\n  // a { in a comment\n'
             '  int f() const { return g("}{"); }\n\n private:\n  int a_ = 3;\n};\n}  // namespace a\n')
    assert not list(violations_of("docs/ok.md", "ü" * PAGE_COLUMNS))
    assert not list(violations_of("models/ok.h", clean)), list(violations_of("models/ok.h", clean))
    assert [f[0] for f in functions_of(clean)] == ["S", "f"], list(functions_of(clean))


def main():
    self_test()
    if len(sys.argv) > 1:
        found = (path for path in pathlib.Path(sys.argv[1]).rglob("*") if path.suffix in (".h", ".hpp", ".cc", ".cpp", ".cu"))
        print(house_of({str(path): path.read_text(errors="replace") for path in found}))
        return 0
    files = source_files(*TEXT)
    product = {path: text for path, text in files.items() if path.endswith(CPP) and path.startswith(PRODUCT)}
    house = house_of(product)
    print(house, lines_by_room(product), sep="\n")
    found = [line for path, text in files.items() for line in violations_of(path, text)]
    found += worse_than_held(house)
    found += [f"{path}: a compiled file; build it below build/" for path in compiled_files()]
    functions = sum(1 for path, text in files.items() if path.endswith(CPP) for _ in functions_of(text))
    assert functions > 200, f"only {functions} functions seen: the measure has gone blind"
    print("\n".join(found) or f"{functions} functions in {len(files)} files are within their budgets")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
