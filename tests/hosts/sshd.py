"""A real sshd of the test's own: its configuration, its keys, and the client's files to reach it.

Not a test itself; see hosts.py.
"""

import os
import pathlib
import subprocess

import debs

CONFIG = """
HostKey {etc}/host_key
AuthorizedKeysFile {etc}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
PrintMotd no
UseDNS no
MaxStartups 200
LogLevel VERBOSE
"""


class Ssh:
    """Where the programs are, and one key for all logins of a site."""

    def __init__(self, folder):
        self.prefix, missing = debs.unpacked("openssh-server")
        assert self.prefix, missing
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.key = self.folder / "key"
        self.known_hosts = self.folder / "known_hosts"
        self.config = self.folder / "config"
        make_key(self.key)

    def admit(self, host):
        """Makes the host's key and authorizes the login key."""
        etc = host.folder / "etc"
        make_key(etc / "host_key")
        (etc / "authorized_keys").write_text(self.key.with_suffix(".pub").read_text())

    def write_client_files(self, hosts):
        known, config = [], []
        for host in hosts:
            public = (host.folder / "etc/host_key.pub").read_text().split()
            for address in filter(None, (host.address, getattr(host, "address_6", None))):
                name = address if host.port == 22 else f"[{address}]:{host.port}"
                known.append(f"{name} {public[0]} {public[1]}\n")
            config.append(f"Host {host.name}\n  HostName {host.address}\n  Port {host.port}\n")
        self.known_hosts.write_text("".join(known))
        config.append(f'Host *\n  IdentityFile "{self.key}"\n  IdentitiesOnly yes\n'
                      f'  UserKnownHostsFile "{self.known_hosts}"\n  GlobalKnownHostsFile none\n'
                      "  UpdateHostKeys no\n")
        self.config.write_text("".join(config))


def make_key(path):
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "strait-test", "-f", str(path)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True)


PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def write_config(folder, seen_as, port, listen, home, more=""):
    """`seen_as`: the folder's path as sshd sees it; `home`: of its user, whose bin comes first."""
    own = f"SetEnv HOME={home} PATH={home}/bin:{PATH} {more}\n"
    lines = CONFIG.format(etc=seen_as) + f"Port {port}\n" + own
    lines += "".join(f"ListenAddress {address}\n" for address in listen)
    (folder / "sshd_config").write_text(lines)


def environment(prefix, outside=None):
    """Of sshd: it finds its libraries; `outside`: the prefix's path here if it is another there."""
    folders = debs.library_folders(outside or prefix)
    if outside:
        folders = [folder.replace(str(outside), str(prefix), 1) for folder in folders]
    return {"PATH": PATH, "LD_LIBRARY_PATH": ":".join(folders), "LC_ALL": "C"}


def client(ssh, host, *words):
    """argv of a plain ssh to the host, for tests of the rig itself."""
    return ["ssh", "-F", str(ssh.config), "-o", "BatchMode=yes", host.name, *words]


def is_root():
    return os.geteuid() == 0
