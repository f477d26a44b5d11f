"""Recipes and settings as the program reads them. A dict of a section is written key by key, so that it adds to the
other keys of the section; a table inside of it (`model.lora`) is one value."""

import contextlib
import json
import numbers
import os
import pathlib
import re
import tempfile


def overrides(settings):
    """The words of --set."""
    for key, value in _by_key(settings):
        yield "--set"
        yield f"{key}={'' if value is None else _toml(value)}"


@contextlib.contextmanager
def recipe_file(recipe):
    """The path of a recipe; a dict is written to a file for the time of the program. The run is called `recipe` if the
    dict has no name."""
    if isinstance(recipe, (str, os.PathLike)):
        yield recipe
        return
    with tempfile.TemporaryDirectory(prefix="strait-recipe-") as folder:
        file = pathlib.Path(folder, "recipe.toml")
        lines = (f"{key} = {_toml(value)}\n" for key, value in _by_key(recipe) if value is not None)
        file.write_text("".join(lines), encoding="utf-8")
        yield file


def _by_key(table):
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from ((f"{name}.{key}", one) for key, one in value.items())
        else:
            yield name, value


def _toml(value):
    if isinstance(value, (str, os.PathLike)):
        return json.dumps(os.fspath(value), ensure_ascii=False)  # JSON's escapes are TOML's
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return repr(float(value))
    if isinstance(value, dict):
        items = (f"{key if re.fullmatch('[A-Za-z0-9_-]+', key) else _toml(key)} = {_toml(one)}" for key, one in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    raise TypeError(f"a recipe has no values such as {value!r}; it has texts, numbers, booleans, lists and dicts")
