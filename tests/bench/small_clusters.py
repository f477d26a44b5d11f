"""Layouts and rows that strait plan chooses for small clusters of unequal hosts, really run. See README.md.

usage: small_clusters.py [--bin FOLDER] [--steps 10] [--first 1] [--clusters 20] [--quick]
       small_clusters.py --every [--steps 8] [--first 1] [--clusters 3]
       small_clusters.py --replicas [--batch 128] [--steps 20]

Hosts are namespaces with shares of a core (cgroups) and lines of their own; probed, planned, run. A cluster is
drawn from its number. --every: of clusters of two hosts, all layouts. --replicas: instead, a fast replica alone, and with one that is ten times
slower; the loss is that of the last five steps. Needs root.
"""

import contextlib
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import machinery

sys.path[:0] = [str(machinery.ROOT / "tests/hosts"), str(machinery.ROOT / "tests/processes")]

import control_group
import hosts

MODEL = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 64, "n_embd": 256, "n_layer": 8, "n_head": 4,
         "tie_word_embeddings": False}
WARM = 2  # steps


class Cluster:
    """Hosts with these shares of a core and megabits a second in each direction; a folder with a model and text."""

    def __init__(self, options, folder, shares, megabits, until):
        self.options, self.folder = options, folder
        self.site = hosts.Site(folder / "site", len(shares))
        until.callback(self.site.close)
        for host, share, rate in zip(self.site.hosts, shares, megabits):
            hosts.install_links(host)
            host.shape(up_megabits=rate, down_megabits=rate)
            group = control_group.ControlGroup(host.name, cores=share)
            until.callback(group.close)
            group.add(host.sshd_pid())
        (folder / "model").mkdir()
        layers = 2 if options.replicas or options.quick else MODEL["n_layer"]
        (folder / "model/config.json").write_text(json.dumps({**MODEL, "n_layer": layers}))
        machinery.write_text(folder, 64, 800)
        self.settings = {
            "data.row": 64, "train.batch": 16, "train.micro_batch": 1, "train.steps": WARM + options.steps,
            "checkpoint.every": 0, "hosts.backend": "ssh", "hosts.ssh_config": str(self.site.ssh.config),
            "hosts.list": self.site.names(), "hosts.restart": 0, "pipeline.replicas": 1}
        self.strait("probe", self.recipe("probed", {"pipeline.stages": len(shares)}), "-o", "links.toml")
        self.settings["hosts.links"] = "links.toml"

    def recipe(self, name, settings):
        machinery.write_recipe(self.folder, name, {**self.settings, **settings})
        return f"{name}.toml"

    def strait(self, *words):
        command = [self.options.bin.resolve() / "strait", *words]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{words} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def forecast_and_measured(self, name, settings):
        """Seconds of a step by the plan, and of the run; the plan."""
        recipe = self.recipe(name, settings)
        planned = json.loads(self.strait("plan", recipe, "--json"))
        self.strait("run", recipe)
        steps = [step["seconds"] for step in machinery.metrics_of(self.folder, name)[WARM:]]
        taken = statistics.mean(steps) if "sync.every" in settings else statistics.median(steps)
        return planned["load"]["step_seconds"], taken, planned


def blocks_of(plan):
    return ", ".join(f"{p['host']} {p['chunks'][0][1] - p['chunks'][0][0] + 1}" for p in plan["processes"])


def chosen_and_even(cluster, number, shares):
    layers, stages = 2 if cluster.options.quick else MODEL["n_layer"], len(shares)
    cuts = [layers * i // stages for i in range(stages + 1)]
    even = {"pipeline.stages": stages, "pipeline.partition": [[a, b - 1] for a, b in zip(cuts, cuts[1:])]}
    forecast, taken, plan = cluster.forecast_and_measured("chosen", {"pipeline.stages": "auto"})
    even_forecast, even_taken, _ = cluster.forecast_and_measured("even", even)
    print(f"{number:7} {forecast:9.3f} {taken:9.3f} {even_forecast:9.3f} {even_taken:9.3f} "
          f"{even_forecast / forecast:9.2f} {even_taken / taken:9.2f}  {blocks_of(plan)}", flush=True)


def every_layout(cluster, number):
    """The chosen layout, and how far it is from the best one of all."""
    forecast, chosen, plan = cluster.forecast_and_measured("chosen", {"pipeline.stages": "auto"})
    layers, names = 2 if cluster.options.quick else MODEL["n_layer"], cluster.settings["hosts.list"]
    layouts = [([name], [layers]) for name in names]
    layouts += [(order, [cut, layers - cut]) for order in (names, names[::-1]) for cut in range(1, layers)]
    taken = {}
    for place, (order, blocks) in enumerate(layouts):
        ends = [sum(blocks[:i]) for i in range(len(blocks) + 1)]
        settings = {"hosts.list": order, "pipeline.stages": len(order),
                    "pipeline.partition": [[a, b - 1] for a, b in zip(ends, ends[1:])]}
        text = ", ".join(f"{name} {count}" for name, count in zip(order, blocks))
        taken[text] = cluster.forecast_and_measured(f"layout-{place}", settings)[1]
        print(f"{number:7} {text:20} {taken[text]:9.3f}", flush=True)
    best = min(taken, key=taken.get)
    print(f"{number:7} chosen: {blocks_of(plan)} (and ends), forecast {forecast:.3f}, measured {chosen:.3f}; "
          f"best: {best}, {taken[best]:.3f}; chosen / best {chosen / taken[best]:.3f}", flush=True)


def rows_of_replicas(cluster):
    settings = {"train.batch": cluster.options.batch, "pipeline.stages": 1}
    both = {**settings, "pipeline.replicas": 2, "sync.method": "diloco", "sync.every": 10}
    runs = {"the fast one alone": {**settings, "hosts.list": cluster.settings["hosts.list"][:1]},
            "chosen rows": both, "equal rows": {**both, "pipeline.rows": "equal"}}
    alone = None
    for name, of_run in runs.items():
        forecast, taken, plan = cluster.forecast_and_measured(name.replace(" ", "-"), of_run)
        alone = alone or taken
        losses = [step["loss"] for step in machinery.metrics_of(cluster.folder, name.replace(" ", "-"))]
        print(f"{name:20} {forecast:9.3f} {taken:9.3f} {taken / alone:9.2f} {statistics.mean(losses[-5:]):9.4f}  "
              f"{plan['replica_rows'] or ''}", flush=True)


def main():
    options = machinery.options_of(__doc__, steps=10, first=1, clusters=20, every=False, replicas=False,
                                   batch=128)
    if not control_group.usable():
        print("skipped: needs root, and cgroups that it may write")
        sys.exit(77)
    hosts.require_namespaces()
    if options.quick:
        options.steps, options.clusters = 3, 1
    print(f"seconds a step; load {os.getloadavg()[0]:.1f}")
    if options.every:
        print("cluster layout             measured")
    elif options.replicas:
        print("replicas              forecast  measured   / alone      loss  rows of each")
    else:
        print("cluster   chosen  measured      even  measured  forecast  measured  blocks (and ends) of each host")
    for number in range(options.first, options.first + options.clusters):
        chance = random.Random(number)
        count = 2 if options.quick or options.every else chance.randint(2, 4)
        # Not more than two cores together: a run is to have what its plan says.
        shares = [chance.choice((0.5, 0.25, 0.12)) for _ in range(count)]
        megabits = [chance.choice((20, 50, 200)) for _ in range(count)]
        if options.replicas:
            shares, megabits = (0.8, 0.08), (200, 200)
        with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as until:
            cluster = Cluster(options, pathlib.Path(place), shares, megabits, until)
            if options.replicas:
                return rows_of_replicas(cluster)
            if options.every:
                every_layout(cluster, number)
            else:
                chosen_and_even(cluster, number, shares)


if __name__ == "__main__":
    main()
