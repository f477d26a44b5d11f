"""The files of recipes/engines fit the engines' own schemas, have no key that an engine would ignore, and all run the
same command. SkyPilot and dstack need environments of their own, so they are checked by ./strait test --all only."""

import copy
import json
import os
import pathlib
import subprocess
import sys
import unittest

import engines

try:
    import kubernetes_validate
    import yaml
    from kubeflow_trainer_api import models
except ImportError as error:
    print(f"skipped: {error}; ./strait test installs it")
    sys.exit(77)

FILES = engines.FILES
TESTS = pathlib.Path(__file__).resolve().parents[1]
KUBERNETES = "1.34"
KINDS = {"JobSet": models.JobsetV1alpha2JobSet, "ClusterTrainingRuntime": models.TrainerV1alpha1ClusterTrainingRuntime,
         "TrainJob": models.TrainerV1alpha1TrainJob}
COMMAND, = (text.strip() for text in next(iter(engines.page().values())))

# What Volcano knows of a Job, without the pods; there is no package of its schema.
POLICY = {"event": {"*", "PodPending", "PodRunning", "PodFailed", "PodEvicted", "Unknown", "TaskCompleted", "OutOfSync",
                    "CommandIssued", "JobUpdated", "TaskFailed"},
          "action": {"AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob",
                     "CompleteJob", "ResumeJob"},
          "exitCode": int, "timeout": str}
VOLCANO = {"schedulerName": str, "minAvailable": int, "maxRetry": int, "queue": str, "priorityClassName": str,
           "plugins": {"env": [str], "svc": [{"--publish-not-ready-addresses=true", "--disable-network-policy=true"}]},
           "policies": [POLICY],
           "tasks": [{"name": str, "replicas": int, "minAvailable": int, "maxRetry": int, "policies": [POLICY],
                      "template": None}]}

# Programs of an environment that has the engine's package, given a file.
LOAD = {
    "skypilot": ("import json, sys, sky; task = sky.Task.from_yaml(sys.argv[1]); "
                 "print(json.dumps([task.num_nodes, task.run.strip()]))"),
    "dstack": ("import json, sys, yaml; from dstack._internal.core.models.configurations import parse_apply_configuration; "
               "task = parse_apply_configuration(yaml.safe_load(open(sys.argv[1]))); "
               "print(json.dumps([task.nodes, task.commands[-1]]))"),
}


def lost(given, kept, at=""):
    """Keys that the engine's model does not know: it leaves them out, as a cluster would."""
    if isinstance(given, dict):
        for key, one in given.items():
            if isinstance(kept, dict) and key in kept:
                yield from lost(one, kept[key], f"{at}.{key}")
            else:
                yield f"{at}.{key}"
    elif isinstance(given, list):
        for number, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from lost(one, other, f"{at}[{number}]")


def check_fits(value, schema, at):
    """`schema`: a type, a set of values, a list of one for each entry, a table of keys; None: checked elsewhere."""
    if isinstance(schema, list):
        for number, one in enumerate(value):
            check_fits(one, schema[0], f"{at}[{number}]")
    elif isinstance(schema, dict):
        for key, one in value.items():
            if key not in schema:
                raise ValueError(f"{at} has no {key}")
            check_fits(one, schema[key], f"{at}.{key}")
    elif not (schema is None or (value in schema if isinstance(schema, set) else isinstance(value, schema))):
        raise ValueError(f"{at} is {value!r}")


def documents(name):
    return list(yaml.safe_load_all((FILES / name).read_text()))


def check(document):
    """Raises where the engine would refuse the document, or ignore a part of it."""
    if document["apiVersion"] == "batch.volcano.sh/v1alpha1":
        check_fits({key: value for key, value in document.items() if key != "metadata"},
                   {"apiVersion": str, "kind": {"Job"}, "spec": VOLCANO}, "Job")
        named = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": document["metadata"]}
        kubernetes_validate.validate(named, KUBERNETES, strict=True)
        for task in document["spec"]["tasks"]:
            check({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": task["template"]}})
        return
    model = KINDS.get(document["kind"])
    if model is None:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
        return
    ignored = list(lost(document, model.from_dict(document).to_dict()))
    if ignored:
        raise ValueError(f"{document['kind']} has no {', '.join(ignored)}")
    # The models of Kubeflow's package take any text for a quantity or a policy.
    template = document["spec"].get("template", document)["spec"]
    for job in template.get("replicatedJobs", []):
        check({"apiVersion": "batch/v1", "kind": "Job", "spec": job["template"]["spec"]})


def tables(value):
    """All tables in it, from the outermost on."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from tables(one)


class Files(unittest.TestCase):
    KUBERNETES_FILES = ("kubernetes-job.yaml", "jobset.yaml", "trainjob.yaml", "volcano.yaml")

    def test_clusters_take_every_key(self):
        for name in self.KUBERNETES_FILES:
            for document in documents(name):
                with self.subTest(f"{name}: {document['kind']}"):
                    check(document)

    def test_check_finds_a_wrong_key_in_every_table(self):
        free = {"labels", "matchLabels", "selector", "requests"}  # whose keys are the user's
        for name in self.KUBERNETES_FILES:
            for document in documents(name):
                for number, table in enumerate(tables(document)):
                    if any(table is outer.get(key) for outer in tables(document) for key in free):
                        continue
                    with self.subTest(f"{name}: {document['kind']} {list(table)}"):
                        wrong = copy.deepcopy(document)
                        list(tables(wrong))[number]["unknownKey"] = "x"
                        with self.assertRaises((ValueError, kubernetes_validate.ValidationError)):
                            check(wrong)

    def test_all_run_the_same_command_and_no_secret_is_in_it(self):
        for name in self.KUBERNETES_FILES:
            commands = [" ".join(table["command"]) for document in documents(name) for table in tables(document)
                        if "command" in table]
            self.assertEqual(len(commands), 1, name)
            self.assertTrue(commands[0].startswith(COMMAND), commands)
        for path in FILES.glob("*.yaml"):
            self.assertRegex(path.read_text(), r"STRAIT_JOIN_SECRET", path)
            self.assertNotRegex(path.read_text(), r"strait run.*SECRET", path)
            # There is another package of this name in the index.
            self.assertNotIn("pip install strait", path.read_text(), path)

    def test_every_file_and_command_of_the_page_is_run_by_a_test(self):
        tests = "".join(path.read_text() for path in TESTS.glob("*/*_test.py") if "import engines" in path.read_text())
        for heading, blocks in list(engines.page().items())[1:]:
            for number in range(len(blocks)):
                call = f'engines.commands("{heading}"' + (f", {number})" if number else "")
                self.assertTrue(call in tests, call)
        for path in FILES.glob("*.yaml"):
            self.assertTrue(f'assert_goes_on("{path.name}"' in tests, path)

    def load(self, engine, file):
        if not os.environ.get("STRAIT_CAMPAIGNS"):
            self.skipTest(f"./strait test --all installs {engine}: hundreds of megabytes")
        environment = pathlib.Path(os.environ["STRAIT_BUILD"], "engines", engine)
        python = environment / "bin" / "python"
        if not (environment / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", engine], check=True)
            (environment / "complete").touch()
        loaded = subprocess.run([python, "-c", LOAD[engine], FILES / file], check=True, capture_output=True, text=True,
                                env={**os.environ, "HOME": str(environment), "STRAIT_JOIN_SECRET": "0" * 64})
        nodes, command = json.loads(loaded.stdout.splitlines()[-1])
        self.assertEqual((nodes, command), (3, COMMAND))

    def test_skypilot(self):
        self.load("skypilot", "skypilot.yaml")

    def test_dstack(self):
        self.load("dstack", "dstack.yaml")


if __name__ == "__main__":
    unittest.main(verbosity=2)
