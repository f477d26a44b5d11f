"""Sends the metrics of a run to a tracker: reads metrics.jsonl and events.jsonl, as docs/metrics.md describes them, and
stores in tracked.json how far it has come. A step is sent once, also where a resume has trained it again.

    strait-track.py RUN --to wandb|mlflow|trackio [--project NAME] [--pid LAUNCHER]
"""

import argparse
import json
import os
import pathlib
import re
import sys
import time

LOOK_EVERY = 2  # seconds


def numbers_of(line):
    """tag -> number of a line of metrics.jsonl, with the tags that TensorBoard's files have."""
    for key, value in line.items():
        if key in ("boundaries", "sync"):
            for row in value:
                names = "/".join(one for one in row.values() if isinstance(one, str))
                group = "boundary" if key == "boundaries" else key
                yield from ((f"{group}/{name}/{names}", one) for name, one in row.items() if not isinstance(one, str))
        elif isinstance(value, dict):
            yield from ((f"train/{key}/{process}", one) for process, one in value.items())
        elif key != "step":
            yield f"train/{key}", value


def flat(table, prefix=""):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def without_secrets(recipe):
    """Environments of hosts, and commands, may hold passwords."""
    recipe.pop("on", None)
    for hosts in ("list", "spare"):
        for host in recipe.get("hosts", {}).get(hosts, []):
            if isinstance(host, dict):
                host.pop("environment", None)
    return recipe


class Wandb:
    def __init__(self, project, name, settings, known):
        import wandb
        self._run = wandb.init(project=project, name=name, id=known, resume="allow", config=settings)
        self.id = self._run.id

    def log(self, step, numbers):
        self._run.log(numbers, step=step)

    def close(self):
        self._run.finish()


class Mlflow:
    def __init__(self, project, name, settings, known):
        import mlflow
        self._mlflow = mlflow
        mlflow.set_experiment(project)
        self.id = mlflow.start_run(run_id=known, run_name=None if known else name).info.run_id
        if not known:
            mlflow.log_params(settings)

    def log(self, step, numbers):
        # MLflow's names have no ">".
        self._mlflow.log_metrics({re.sub(r"[^\w/. -]", "-", tag): one for tag, one in numbers.items()}, step=step)

    def close(self):
        self._mlflow.end_run()


class Trackio:
    def __init__(self, project, name, settings, known):
        import trackio
        self._trackio = trackio
        self.id = known or name
        trackio.init(project=project, name=self.id, config=settings, resume="allow")

    def log(self, step, numbers):
        self._trackio.log(numbers, step=step)

    def close(self):
        self._trackio.finish()


TRACKERS = {"wandb": Wandb, "mlflow": Mlflow, "trackio": Trackio}


class Followed:
    """The whole lines of a file as they come. A resume replaces metrics.jsonl by a shorter one."""

    def __init__(self, path):
        self._path, self._file, self._rest = path, None, ""

    def lines(self):
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return
        if self._file is None or status.st_ino != os.fstat(self._file.fileno()).st_ino or status.st_size < self._file.tell():
            self._file, self._rest = open(self._path, encoding="utf-8"), ""
        while text := self._file.readline():
            self._rest += text
            if not self._rest.endswith("\n"):
                return
            line, self._rest = self._rest, ""
            yield json.loads(line)


def main():
    words = argparse.ArgumentParser()
    words.add_argument("run", type=pathlib.Path)
    words.add_argument("--to", choices=TRACKERS, required=True)
    words.add_argument("--project", default="strait")
    words.add_argument("--pid", type=int, help="of the launcher that is live")
    given = words.parse_args()
    state_file = given.run / "tracked.json"
    state = json.loads(state_file.read_text()) if state_file.exists() else {}
    own = state.setdefault(given.to, {"id": None, "step": 0, "evaluated": -1})
    recipe = without_secrets(json.loads((given.run / "plan.json").read_text())["plan"]["recipe"])
    try:
        tracker = TRACKERS[given.to](given.project, recipe["name"], dict(flat(recipe)), own["id"])
    except ImportError as error:
        sys.exit(f"strait: {given.to} is not installed for {sys.executable} ({error}); install it there, or set "
                 "STRAIT_PYTHON to a Python that has it")
    own["id"] = tracker.id
    metrics, events = Followed(given.run / "metrics.jsonl"), Followed(given.run / "events.jsonl")
    sent = 0
    while True:
        live = given.pid is not None and os.path.exists(f"/proc/{given.pid}")
        found = {}
        for line in metrics.lines():
            if line["step"] > own["step"]:
                numbers = ((tag, one) for tag, one in numbers_of(line) if isinstance(one, (int, float)))
                found.setdefault(line["step"], {}).update(numbers)
                own["step"] = line["step"]
        # After the steps: trackers take no number of a step before one that they have.
        for event in events.lines():
            if event["event"] == "evaluated" and event["step"] > own["evaluated"]:
                found.setdefault(event["step"], {})["eval/loss"] = event["loss"]
                own["evaluated"] = event["step"]
        for step, numbers in sorted(found.items()):
            tracker.log(step, numbers)
        sent += len(found)
        if found or not live:
            next_file = state_file.with_suffix(".next")
            next_file.write_text(json.dumps(state))
            next_file.replace(state_file)
        if not live:
            break
        time.sleep(LOOK_EVERY)
    tracker.close()
    print(f"{given.run}: {sent} steps sent to {given.to}, up to step {own['step']}; run {own['id']}")


if __name__ == "__main__":
    main()
