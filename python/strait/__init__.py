"""strait from Python, for notebooks and sweeps: starts the program `strait`, and reads the files that it documents.

    import strait

    run = strait.run("recipe.toml", on_step=print, train={"steps": 100})
    losses = [step["loss"] for step in strait.metrics(run)]
    model = strait.load(run)

A recipe is a path, or a dict of the same keys. Settings override its keys, as --set does: `train={"steps": 100}`, or
`**{"train.steps": 100}`; None takes a key's default. docs/python.md has more.
"""

import json
import pathlib
import tempfile

from ._program import Program, RunError, output_of
from ._toml import overrides, recipe_file

__all__ = ["RunError", "load", "metrics", "plan", "run"]


def plan(recipe, **settings):
    """What a recipe would run where, with memory, bytes and a forecast: the object of `strait plan --json`."""
    with recipe_file(recipe) as file:
        return json.loads(output_of("plan", file, "--json", *overrides(settings)))


def run(recipe, on_step=None, *, replace=False, **settings):
    """Trains to the end and returns the run's directory. `on_step` is called with each line of metrics.jsonl, as a dict.

    Ctrl-C, and an exception in `on_step`, stop the run: it finishes its step, saves, and goes on with `strait resume`;
    then the exception is raised again. A second Ctrl-C ends the run at once. `replace` moves an earlier run of that
    name aside. RunError: the recipe is refused, or the run has failed.
    """
    words = ["--replace"] if replace else []
    directory, cause = None, ""
    with recipe_file(recipe) as file, Program("run", file, "--json", *words, *overrides(settings)) as program:
        for event in program.events():
            kind = event.pop("event")
            if kind == "plan":
                directory = pathlib.Path("runs", event["plan"]["recipe"]["name"])
            elif kind == "step" and on_step is not None:
                on_step(event)
            elif kind == "ended":
                cause = event["cause"]
        program.check(cause)
    return directory


def metrics(run, pandas=False):
    """The steps of a run, live or ended: a list of the objects in its metrics.jsonl, or a DataFrame of them."""
    with open(_directory(run) / "metrics.jsonl", encoding="utf-8") as file:
        steps = [json.loads(line) for line in file if line.endswith("\n")]
    if not pandas:
        return steps
    from pandas import DataFrame
    return DataFrame(steps)


def load(run, **options):
    """The model of a run's newest checkpoint, as transformers loads its export; `options` are those of from_pretrained.

    Adapters are merged by the program: PEFT would add them to the base as published, but those over a base of few bits
    were trained with its rounded values.
    """
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto import modeling_auto
    with tempfile.TemporaryDirectory(prefix="strait-load-") as folder:
        model = pathlib.Path(folder, "model")
        output_of("export", _directory(run), model)
        if (model / "adapter_config.json").exists():
            model = pathlib.Path(folder, "merged")
            output_of("export", _directory(run), model, "--merge")
        family = json.loads((model / "config.json").read_text(encoding="utf-8"))["model_type"]
        # transformers has no text model of mistral3, and mistral4's under this name only.
        only_with_images = (family in modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
                            and family not in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
        kind = AutoModelForImageTextToText if only_with_images else AutoModelForCausalLM
        return kind.from_pretrained(model, **options)


def _directory(run):
    """As the program's verbs take it: a bare name is that of a directory in runs/."""
    path = pathlib.Path(run)
    is_name = len(path.parts) == 1 and not (path / "plan.json").exists()
    return pathlib.Path("runs") / path if is_name else path
