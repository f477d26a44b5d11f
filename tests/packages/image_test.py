"""The image of launcher/package/Containerfile, built by buildah on a Debian 12 of debootstrap: launcher, agent and what
an engine starts on a node, each in a run of two stages with a host that is not in it. `./strait test --all` only."""

import json
import os
import pathlib
import shutil
import sys
import tempfile

import debian
import wheels

sys.path[1:1] = [str(debian.ROOT / "tests" / name) for name in ("engines", "processes")]

import engines
import runs

IMAGE, USER = "strait", debian.USER
JOB = "/srv"  # where the folder of a test is in a container


def make_base(folder):
    """With all that the Containerfile asks apt-get for, which then needs no network."""
    shutil.rmtree(folder)
    debian.call("cp", "-a", "--reflink=auto", debian.base(), folder)
    for words in (["update"], ["-y", "--no-install-recommends", "install", "openssh-client", "python3-venv"], ["clean"]):
        debian.call("chroot", folder, "apt-get", *words, env={**debian.ENVIRONMENT, "LC_ALL": "C"})


class Buildah:
    """With storage of its own, which close() removes."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="strait-image-"))
        self.words = ["buildah", "--root", self.folder / "root", "--runroot", self.folder / "run"]
        self.environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "TMPDIR": str(self.folder)}

    def __call__(self, *words):
        return debian.call(*self.words, *words, env=self.environment).strip()

    def close(self):
        self("rm", "--all")
        self("rmi", "--all", "--force")
        shutil.rmtree(self.folder)

    def import_folder(self, folder, name):
        container = self("from", "scratch")
        self("add", "--quiet", container, folder, "/")
        self("commit", "--quiet", "--rm", container, name)

    def build(self, dist):
        with wheels.timed("the image is built"):
            self("build", "--quiet", "--network=host", "-f", debian.ROOT / "launcher/package/Containerfile", "-t", IMAGE,
                 "--build-arg=BASE=base", "--build-arg=PIP_NO_INDEX=1", f"--build-arg=TORCH={wheels.PIN}+cpu", dist)


class Image(runs.RunCase):
    @classmethod
    def setUpClass(cls):
        cls.buildah = Buildah()
        cls.addClassCleanup(cls.buildah.close)
        dist = cls.buildah.folder / "dist"
        shutil.copytree(debian.kept("wheels", wheels.make_wheels), dist)
        wheels.make_wheel(dist)
        cls.buildah.import_folder(debian.kept("base-of-image", make_base), "base")
        cls.buildah.build(dist)
        image = json.loads(cls.buildah("inspect", "--type=image", IMAGE))
        cls.entry_point = image["OCIv1"]["config"]["Entrypoint"]

    def container(self, folder, *words, **variables):
        """The entry point with these words, in a container with this folder."""
        os.chown(folder, USER, USER)
        for path in folder.rglob("*"):
            os.chown(path, USER, USER)
        settings = [f"--env={name}={value}" for name, value in variables.items()]
        name = self.buildah("from", IMAGE)
        self.addCleanup(self.buildah, "rm", name)
        return runs.Launched(
            self, [*self.buildah.words[1:], "run", "--network=host", f"--volume={folder}:{JOB}", f"--workingdir={JOB}",
                   *settings, name, "--", *self.entry_point, *words],
            runs.Run(folder / "runs" / "recipe"), self.buildah.words[0], env=self.buildah.environment)

    def folder(self, name, files=()):
        """Of one host."""
        folder = self.home / name
        folder.mkdir()
        for file in files:
            copy = shutil.copytree if (self.home / file).is_dir() else shutil.copy
            copy(self.home / file, folder / file)
        return folder

    def test_entry_point_is_the_program_of_a_user(self):
        version = self.strait("--version")[1]
        one = self.container(self.folder("one"), "--version")
        self.assertEqual((one.end(), one.output()), (0, version))

    def test_launcher_and_worker_of_an_engine(self):
        """Rank 0 and 1 are containers, rank 2 is this machine, with the variables that torchrun and Ray set."""
        expected = engines.expected(self)
        command = next(iter(engines.page().values()))[0].split()[1:]
        shared = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "STRAIT_JOIN_SECRET": engines.SECRET}
        first = self.container(self.folder("first", ["recipe.toml", "model", "train.jsonl"]), *command, RANK="0", **shared)
        second = self.container(self.folder("second", ["recipe.toml"]), *command, RANK="1", **shared)
        third = self.launch(*command, env={**os.environ, **shared, "RANK": "2"})
        for node in (first, second, third):
            self.assertEqual(node.end(), 0, node.output())
        self.assertEqual({one["host"] for one in first.run.plan()["processes"]}, {"node0", "node1", "node2"})
        self.assert_same_bits(expected, first.run.learnt(engines.STEPS))

    def test_agent(self):
        """Of a launcher on this machine, where the other host is."""
        local = self.train("local")
        launched = self.start("joined", {"hosts.backend": "join", "hosts.list": ["alpha", "beta"], "hosts.restart": 0,
                                         "hosts.address": "127.0.0.1", "checkpoint.home": "all"})
        tokens = [launched.run.path / "join" / f"{host}.token" for host in range(2)]
        launched.wait_for("both tokens", lambda: all(token.exists() for token in tokens))
        folder = self.folder("alpha")
        shutil.copy(tokens[0], folder / "token")
        alpha = self.container(folder, "join", "token")
        beta = self.launch("join", tokens[1])
        for one in (launched, alpha, beta):
            self.assertEqual(one.end(), 0, one.output())
        self.assert_same_bits(local.learnt(20), launched.run.learnt(20))


def reason_to_skip():
    if not os.environ.get("STRAIT_CAMPAIGNS"):
        return "./strait test --all builds the image"
    if shutil.which("buildah") is None:
        return "there is no buildah"
    if reason := debian.why_not():
        return reason
    try:
        debian.kept("base-of-image", make_base)
        debian.kept("wheels", wheels.make_wheels)
        debian.kept("tools", wheels.make_tools)
    except debian.Absent as absent:
        return str(absent)
    return ""


if __name__ == "__main__":
    if reason := reason_to_skip():
        print(f"skipped: {reason}")
        sys.exit(77)
    runs.main()
