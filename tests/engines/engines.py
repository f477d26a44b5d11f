"""What the tests of all engines share: the recipe that each of them trains, recipe.toml in this folder, and the commands
of docs/engines.md, word for word.

Not a test itself. A case is a RunCase (../processes/runs.py).
"""

import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "processes"))

import runs

RECIPE = HERE / "recipe.toml"
STEPS = int(re.search(r"(?m)^steps = (\d+)$", RECIPE.read_text())[1])
SECRET = "5a" * 32
FILES = runs.ROOT / "recipes" / "engines"


def page():
    """Heading -> its blocks of shell commands; the first heading is empty."""
    _, *parts = re.split(r"(?m)^#+ (.*)\n", (runs.ROOT / "docs" / "engines.md").read_text())
    blocks = {}
    for heading, text in zip(parts[::2], parts[1::2]):
        found = re.findall(r"(?m)(?:^    .*\n)+", text)
        blocks[heading] = [re.sub(r"(?m)^    ", "", block) for block in found]
    return blocks


def commands(heading, number=0, **names):
    """A block of the page, with these values in place of the names in it."""
    block = page()[heading][number]
    for name, value in names.items():
        assert re.search(rf"\b{name}\b", block), f"no {name} in {block}"
        block = re.sub(rf"\b{name}\b", value, block)
    return block


def secret(folder):
    """The file that the page makes."""
    made = subprocess.run(["openssl", "rand", "-hex", "32"], capture_output=True, text=True, check=True)
    (folder / "secret").write_text(made.stdout)


def words_of_file(name, variables):
    """What a file of recipes/engines starts strait with, as Kubernetes completes it."""
    import yaml
    words = command_in(list(yaml.safe_load_all((FILES / name).read_text())))
    for variable, value in variables.items():
        words = [word.replace(f"$({variable})", value) for word in words]
    assert words[0] == "strait", words
    return words[1:]


def command_in(value):
    if isinstance(value, list):
        return next(filter(None, map(command_in, value)), None)
    if not isinstance(value, dict):
        return None
    given = value.get("command") or value.get("run") or (value.get("commands") or [None])[-1]
    return given.split() if isinstance(given, str) else given or command_in(list(value.values()))


def expected(case):
    """What the recipe learns on one machine. The recipe is in case.home then, with its model and data."""
    shutil.copy(RECIPE, case.home)
    if not learnt:
        case.ok("run", RECIPE.name)
        run = case.run_of("recipe")
        learnt.append(run.learnt(STEPS))
        shutil.rmtree(run.path)
    return learnt[0]


learnt = []


def assert_trained(case, run):
    case.assert_same_bits(expected(case), run.learnt(STEPS))
