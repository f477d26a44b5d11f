"""On a Debian 12 without a compiler the wheel, the .deb and the .tar.zst install and train; what is removed leaves
nothing. All of them are made of the build that is there. Sizes and seconds are printed, and not judged."""

import hashlib
import os
import pathlib
import re
import shutil
import sys
import tempfile

import debian
import wheels
from wheels import BUILD, PACKAGES_OF_PYTHON, PIN, timed

PYTHON = "/opt/venv/bin/python"
SITE = "lib/python3.11/site-packages"
LARGEST = 40e6
CAMPAIGN = bool(os.environ.get("STRAIT_CAMPAIGNS"))


def make_debs(folder, scratch, packages, deb):
    """The libraries that the .deb depends on."""
    with debian.Debian(scratch / "for debs", packages) as system:
        for words in (["update"], ["-y", "--no-install-recommends", "--download-only", "install", f"/packages/{deb.name}"]):
            code, out = system.run("apt-get", *words, user=0, network=True)
            if code:
                raise debian.Failed(out[-2000:])
        for one in (system.root / "var/cache/apt/archives").glob("*.deb"):
            shutil.move(one, folder)


def make_packages(folder):
    """The three files, by the commands of launcher/package/README.md."""
    found = [wheels.make_wheel(folder)]
    with timed("the .deb and the .tar.zst are"):
        debian.call("cpack", "-G", "DEB;TZST", "-B", folder / "cpack", cwd=BUILD)
    for name in ("strait_0.1.0_amd64.deb", "strait-0.1.0-linux-x86_64.tar.zst"):
        found.append(shutil.move(folder / "cpack" / name, folder / name))
    for package in found:
        print(f"{package.stat().st_size / 1e6:6.1f} MB {package.name}", flush=True)
        assert package.stat().st_size < LARGEST
    return found


def check_programs(system, programs):
    """What is installed finds no libraries where this build has them."""
    for program in ("strait", "strait-torch", "strait-stage", "strait-stage-torch"):
        content = (system.root / programs / program).read_bytes()
        assert b"\0$ORIGIN:$ORIGIN/../../torch/lib\0" in content, program


def train(system, strait, steps, environment=()):
    """The quickstart, by a user who has nothing of strait yet."""
    system.ok("rm", "-rf", "quickstart.toml", "runs", "data", "models")
    system.ok(strait, "init", "quickstart", environment=environment)
    out = system.ok(strait, "run", "quickstart.toml", "--set", f"train.steps={steps}", environment=environment)
    assert f"step {steps}/{steps}" in out, out


def check_tokenizer(system, strait):
    """It runs in the Python that has the wheel."""
    system.ok(PYTHON, "-c", "from tokenizers import Tokenizer, models, pre_tokenizers\n"
              "letters = sorted(pre_tokenizers.ByteLevel.alphabet())\n"
              "tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))\n"
              "tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)\n"
              "tokenizer.save('tokenizer.json')")
    out = system.ok(strait, "plan", "quickstart.toml", "--set", 'data.tokenizer="/srv/user"')
    assert "300 steps" in out, out


def libtorch_of(system, *strait, **options):
    """The folder that doctor names. No library of a driver is in the chroot, whatever this machine has."""
    out = system.ok(*strait, "doctor", **options)
    return re.search(r"libtorch \S+ for CPUs, in (\S+); no NVIDIA driver is here, so CPUs are used", out).group(1)


def check_nothing_is_left(system, before):
    changed = sorted(system.files() ^ before)
    assert not changed, changed[:20]


def check_wheel(system, wheel):
    strait = "/opt/venv/bin/strait"
    with timed("torch and what it needs are installed"):
        system.ok("python3", "-m", "venv", "/opt/venv", user=0)
        system.ok(PYTHON, "-m", "pip", "install", "--no-compile", "-f", "/packages/wheels", PIN, *PACKAGES_OF_PYTHON, user=0)
    before = system.files()
    with timed("the wheel is installed, and trains the quickstart"):
        system.ok(PYTHON, "-m", "pip", "install", f"/packages/{wheel.name}", user=0)
        train(system, strait, 300 if CAMPAIGN else 30)
    told = system.ok(strait, "generate", "runs/quickstart", "--prompt", "5 March 2021 -> ")
    assert "2021-03-05" in told if CAMPAIGN else re.search(r"\d", told), told
    check_tokenizer(system, strait)
    assert libtorch_of(system, strait) == f"/opt/venv/{SITE}/torch/lib"
    assert ".TH STRAIT 1" in system.ok("cat", "/opt/venv/share/man/man1/strait.1")
    assert system.ok("/opt/venv/bin/strait-stage", "--version").startswith("strait-stage 0.1.0")
    check_programs(system, f"opt/venv/{SITE}/strait/bin")
    check_other_folders(system, wheel)
    check_other_torch(system, strait)
    system.ok(PYTHON, "-m", "pip", "uninstall", "-y", "strait", user=0)
    check_nothing_is_left(system, before)


def check_other_folders(system, wheel):
    """--user and --target find the torch that lies next to the package there."""
    pip, = (system.root / "usr/share/python-wheels").glob("pip-*.whl")  # this Debian has no command for it
    with_pip = {"PYTHONPATH": f"/usr/share/python-wheels/{pip.name}"}
    links = f"ln -s /opt/venv/{SITE}/torch /opt/venv/{SITE}/torch-*.dist-info $0"
    for kind, site in (("--user", f"/srv/user/.local/{SITE}"), ("--target=/srv/user/folder", "/srv/user/folder")):
        system.ok("python3", "-m", "pip", "install", "--no-deps", "--no-compile", "--break-system-packages", kind,
                  f"/packages/{wheel.name}", environment=with_pip)
        system.ok("sh", "-c", links, site)
        program = "/srv/user/folder/bin/strait" if "target" in kind else "/srv/user/.local/bin/strait"
        path = {"PYTHONPATH": site} if "target" in kind else {}
        assert libtorch_of(system, program, environment=path) == f"{site}/torch/lib", kind
        # The program itself, too: a launcher starts it on hosts.
        assert libtorch_of(system, f"{site}/strait/bin/strait") == f"{site}/torch/lib", kind
        system.ok("rm", "-rf", "/srv/user/.local", "/srv/user/folder")


def check_other_torch(system, strait):
    """One of another version is refused, and one in another folder is used."""
    system.ok("sh", "-c", f"cd /opt/venv/{SITE} && mkdir /opt/other && mv torch torch-*.dist-info /opt/other", user=0)
    code, out = system.run(strait, "doctor")
    assert code == 10 and "-m pip install 'torch==2.13.*'" in out and out.count("\n") == 1, out
    assert libtorch_of(system, strait, environment={"PYTHONPATH": "/opt/other"}) == "/opt/other/torch/lib"
    system.ok("sh", "-c", f"cd /opt/other && mv torch-2.13.0*.dist-info torch-2.12.0.dist-info && "
              "sed -i 's/^Version: .*/Version: 2.12.0/' torch-2.12.0.dist-info/METADATA", user=0)
    code, out = system.run(strait, "doctor", environment={"PYTHONPATH": "/opt/other"})
    assert code == 10 and "has 2.12.0" in out and out.count("\n") == 1, out
    system.ok("sh", "-c", f"cd /opt/other && mv torch-2.12.0.dist-info {PIN.replace('==', '-')}+cpu.dist-info && "
              f"mv * /opt/venv/{SITE} && rmdir /opt/other", user=0)


def check_deb(system, deb):
    before, strait = system.files(), "/usr/bin/strait"
    debs = [f"/packages/debs/{one.name}" for one in (system.packages / "debs").iterdir()]
    with timed("the .deb is installed, with the libraries of Debian"):
        system.ok("apt-get", "-y", "--no-install-recommends", "install", f"/packages/{deb.name}", *debs, user=0)
        system.ok("apt-mark", "auto", *(one.split("/")[-1].split("_")[0] for one in debs), user=0)
    code, out = system.run(strait, "doctor")
    assert code == 10 and "python3 has no torch" in out and out.count("\n") == 1, out
    with_torch = {"STRAIT_PYTHON": PYTHON}
    with timed("and trains the quickstart"):
        train(system, strait, 3, environment=with_torch)
    torch_dir = {"Torch_DIR": f"/opt/venv/{SITE}/torch/share/cmake/Torch"}
    assert libtorch_of(system, strait, environment=torch_dir) == f"/opt/venv/{SITE}/torch/lib"
    assert ".TH STRAIT 1" in system.ok("cat", "/usr/share/man/man1/strait.1")
    check_programs(system, "usr/libexec/strait")
    system.ok("apt-get", "-y", "purge", "--autoremove", "strait", user=0)
    check_nothing_is_left(system, before)


def check_archive(system, archive):
    """It runs from any folder, and there are no libraries of Debian any more."""
    home = system.root / "srv/user"
    debian.call("cmake", "-E", "tar", "xf", archive, cwd=home)
    (home / archive.name.removesuffix(".tar.zst")).rename(home / "any folder")
    with timed("the quickstart from the archive"):
        train(system, "/srv/user/any folder/bin/strait", 3, environment={"STRAIT_PYTHON": PYTHON})


def main():
    if reason := debian.why_not():
        print(f"skipped: {reason}")
        return 77
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        packages = scratch / "packages"
        packages.mkdir()
        try:
            debian.base()
            shutil.copytree(debian.kept("wheels", wheels.make_wheels), packages / "wheels")
            made = make_packages(packages)
            needed = debian.call("dpkg-deb", "-f", made[1], "Depends")
            debs = f"debs-{hashlib.sha256(needed.encode()).hexdigest()[:12]}"
            shutil.copytree(debian.kept(debs, lambda folder: make_debs(folder, scratch, packages, made[1])),
                            packages / "debs")
        except debian.Absent as reason:
            print(f"skipped: {reason}")
            return 77
        with debian.Debian(scratch / "root", packages) as system:
            assert system.run("sh", "-c", "command -v cc gcc g++ cmake")[0] != 0, "it has a compiler"
            for check, package in zip((check_wheel, check_deb, check_archive), made):
                check(system, package)
    return 0


if __name__ == "__main__":
    sys.exit(main())
