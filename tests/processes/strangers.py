"""Attackers of a run: they find every port that its processes listen at, and try to get in, to fill memory, or to take
all connections. Not a test itself; see strangers_test.py here and over hosts. STRAIT_CAMPAIGNS: 10,000 connections and
half a gigabyte of zeros for each port; STRAIT_SEED chooses the garbage.

They know what anybody on the network can know, and more: with `JobShim` the public keys of all processes and every
secret of other runs and of earlier starts."""

import concurrent.futures
import contextlib
import itertools
import json
import os
import pathlib
import random
import resource
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time

import runs

SEED = int(os.environ.get("STRAIT_SEED", random.randrange(1 << 32)))
CONNECTIONS = 10_000 if runs.CAMPAIGN else 300
ZEROS = (512 if runs.CAMPAIGN else 64) << 20
MOST_MEMORY = 32 << 20  # that strangers may add to a process

LISTEN = "0A"
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00"  # ZMTP 3.0, then 20 bytes of mechanism, 1 of role, 31 of zeros
CURVE_GREETING = GREETING + b"CURVE".ljust(20, b"\0") + bytes(32)
NULL_GREETING = GREETING + b"NULL".ljust(20, b"\0") + bytes(32)
GARBAGE = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"SSH-2.0-x\r\n", b"\xff" * 64, b"\x16\x03\x01\x02\x00\x01\x00", GREETING,
           CURVE_GREETING[:40], NULL_GREETING + b"\x04\x29\x05READY" + bytes(32), CURVE_GREETING + b"\x04\xc8\x05HELLO" + bytes(194),
           CURVE_GREETING + b"\x06" + struct.pack(">Q", 1 << 62), CURVE_GREETING + b"\x02" + struct.pack(">Q", 1 << 30) + bytes(5000)]


def listening(pid):
    """(address, port) of every TCP socket that a process listens at."""
    inodes = set()
    with contextlib.suppress(OSError):
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{entry}")
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == LISTEN and words[9] in inodes:
                    address, port = words[1].split(":")
                    packed = b"".join(struct.pack("<I", int(address[i:i + 8], 16)) for i in range(0, len(address), 8))
                    text = socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
                    found.add((text, int(port, 16)))
    return found


def ports_of(pids):
    """Pairs of (address, port) and pid, in order."""
    return sorted((place, pid) for pid in pids for place in listening(pid))


def connect(place, seconds=5):
    return socket.create_connection(place, timeout=seconds)


def say_nothing(place, count=20):
    """Connections that are left open."""
    return [connect(place) for _ in range(count)]


def send_all(place, pieces, most_seconds=20):
    """Sends until all is gone or the other side has had enough; how many bytes it took."""
    sent, until = 0, time.monotonic() + most_seconds
    with contextlib.suppress(OSError), connect(place) as peer:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                if time.monotonic() > until:
                    return sent
                peer.settimeout(max(0.1, until - time.monotonic()))
                done = peer.send(rest)
                sent, rest = sent + done, rest[done:]
        with contextlib.suppress(OSError):
            peer.settimeout(0.2)
            peer.recv(1000)
    return sent


def send_garbage(place, choose):
    for piece in [*GARBAGE, choose.randbytes(100_000), CURVE_GREETING + choose.randbytes(100_000)]:
        send_all(place, [piece], 5)


class Garbage:
    """Garbage for these ports in turn, about `rate` connections a second, while it is switched on."""

    def __init__(self, places, rate=72):
        self.places, self.pause, self.sent = places, 1 / rate, 0
        self.on, self.ended = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.send)
        self.thread.start()

    def send(self):
        for place, piece in zip(itertools.cycle(self.places), itertools.cycle(GARBAGE)):
            while not self.on.wait(0.05):
                if self.ended.is_set():
                    return
            with contextlib.suppress(OSError), connect(place, 1) as peer:
                peer.sendall(piece)
            self.sent += 1
            time.sleep(self.pause)

    def stop(self):
        self.ended.set()
        self.on.clear()
        self.thread.join()


def send_zeros(place, total):
    block = bytes(1 << 20)
    sent = send_all(place, (block for _ in range(total >> 20)))
    return sent + send_all(place, [CURVE_GREETING, *(block for _ in range(total >> 20))])


def flood(place, count, seconds=20):
    """Opens so many connections at once, none of which says a thing, and returns those that stand at the end."""
    family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
    waits, poll, standing = {}, select.poll(), []
    for _ in range(count):
        one = socket.socket(family)
        one.setblocking(False)
        one.connect_ex(place)
        waits[one.fileno()] = one
        poll.register(one, select.POLLOUT)
    until = time.monotonic() + seconds
    while waits and time.monotonic() < until:
        for number, _ in poll.poll(500):
            poll.unregister(number)
            one = waits.pop(number)
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                one.close()
            else:
                standing.append(one)
    for one in waits.values():
        one.close()
    return standing


def stranger(*words, keys=None):
    """Runs the stranger program: whether anybody talked to it, and its sentence."""
    done = subprocess.run([runs.BIN / "stranger", *map(str, words)], input="\n".join(keys or ("", "", "")) + "\n",
                          capture_output=True, text=True, timeout=runs.scaled_timeout(30))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.startswith("in"), done.stdout.strip()


class Recorder:
    """What was sent to some ports, as it passes a network device. Needs the right to listen there."""

    def __init__(self, device="lo"):
        self.tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
        self.tap.bind((device, 0))
        self.tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        self.tap.settimeout(0.2)
        self.streams = {}  # (source port, port) -> {offset: bytes}
        self.first = {}
        self.running = True
        self.thread = threading.Thread(target=self.record)
        self.thread.start()

    def record(self):
        while self.running:
            try:
                packet, address = self.tap.recvfrom(1 << 17)
            except TimeoutError:
                continue
            if address[2] == socket.PACKET_OUTGOING or packet[9] != socket.IPPROTO_TCP:
                continue
            segment = packet[(packet[0] & 15) * 4:struct.unpack(">H", packet[2:4])[0] or None]
            source, port, number = struct.unpack(">HHI", segment[:8])
            key, data = (source, port), segment[(segment[12] >> 4) * 4:]
            if segment[13] & 2:  # SYN
                self.first[key], self.streams[key] = number + 1, {}
            elif data and key in self.first and sum(map(len, self.streams[key].values())) < 4 << 20:
                self.streams[key].setdefault((number - self.first[key]) & 0xffffffff, data)

    def stop(self):
        """May be called again."""
        self.running = False
        self.thread.join()
        self.tap.close()

    def streams_to(self, port):
        """The longest beginnings without a gap, longest first."""
        found = []
        for (_, to), pieces in list(self.streams.items()):
            whole = b""
            while to == port and len(whole) in pieces:
                whole += pieces[len(whole)]
            if whole:
                found.append(whole)
        return sorted(found, key=len, reverse=True)


class MemoryWatch:
    """The peak memory (VmHWM, bytes) of processes, by name. `pids`: a function that returns name -> pid."""

    def __init__(self, pids):
        self.pids, self.peaks, self.ended = pids, {}, threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self):
        for count in itertools.count():
            if self.ended.wait(0.1):
                return
            if count % 10 == 0:  # it may look at all processes of the machine
                pids = self.pids()
            for name, pid in pids.items():
                with contextlib.suppress(OSError, StopIteration):
                    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
                    peak = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
                    self.peaks[name] = max(peak, self.peaks.get(name, 0))

    def stop(self):
        self.ended.set()
        self.thread.join()
        return self.peaks


SHIM = """#!{python} -I
import os, select, struct, sys
words = [{real!r}, *sys.argv[1:]]
if len(sys.argv) > 1:
    os.execv(words[0], words)

def exactly(size):
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            sys.exit(1)
        data += more
    return data

size = exactly(4)
job = exactly(struct.unpack("<I", size)[0])
path = {jobs!r} + "/" + str(os.getpid())
with open(path + ".next", "wb") as file:
    file.write(job)
os.rename(path + ".next", path)
reads, writes = os.pipe()
stage = os.getpid()
if os.fork() == 0:
    os.close(reads)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1), os.dup2(null, 2)
    data = size + job
    try:
        while data:
            data = data[os.write(writes, data):]
        while os.getppid() == stage:
            if select.select([0], [], [], 0.5)[0]:
                more = os.read(0, 65536)
                if not more:
                    break
                os.write(writes, more)
    except OSError:
        pass
    os._exit(0)
os.close(writes)
os.dup2(reads, 0)
os.close(reads)
os.execv(words[0], words)
"""


class JobShim:
    """A copy of the programs in `home`/bin. Its strait-stage-torch keeps each job, secrets and all, under the pid of the
    stage. `inside`: what `home` is called where the programs run."""

    def __init__(self, home, inside=None):
        self.bin, self.jobs, inside = home / "bin", home / "jobs", pathlib.Path(inside or home)
        self.bin.mkdir()
        self.jobs.mkdir(mode=0o700)
        for file in runs.BIN.resolve().iterdir():
            name = f"{file.name}-itself" if file.name == "strait-stage-torch" else file.name
            if name.startswith("strait"):
                try:
                    os.link(file, self.bin / name)
                except OSError:
                    shutil.copy2(file, self.bin / name)
        shim = self.bin / "strait-stage-torch"
        shim.write_text(SHIM.format(python=sys.executable, real=str(inside / "bin/strait-stage-torch-itself"), jobs=str(inside / "jobs")))
        shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
        self.program = self.bin / "strait"

    def job(self, pid):
        return json.loads((self.jobs / str(pid)).read_text())

    def all_jobs(self):
        """The latest of each process, by its name."""
        paths = sorted((p for p in self.jobs.iterdir() if p.suffix != ".next"), key=lambda p: p.stat().st_mtime_ns)
        return {job["process"]: job for job in (json.loads(path.read_text()) for path in paths)}


class Attacks:
    """For a RunCase: kinds of attacks, each at every port of a run that trains, which must go on."""

    def setUp(self):
        super().setUp()
        # Descriptors for our own connections.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        self.choose = random.Random(SEED)

    def pids(self, launched):
        """name -> pid of all processes of the run that may listen."""
        return {"launcher": launched.process.pid, **launched.run.processes()}

    def ports(self, launched):
        return ports_of(self.pids(launched).values())

    def reach(self, place, pid, act):
        """What `act` returns, called where that port can be reached."""
        return act(place, pid)

    def server(self, launched, pid):
        """(name of the process, its public key)"""
        raise NotImplementedError

    def watch_memory(self, launched):
        watch = MemoryWatch(lambda: self.pids(launched))
        self.addCleanup(watch.stop)
        return watch

    def step(self, launched):
        return launched.run.newest_step()

    def attack(self, name, launched, act, at_once=1):
        """`at_once`: this many ports. The fewer steps there are meanwhile, the fewer has the quiet run to make again."""
        before, began = self.step(launched), time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            kept = list(pool.map(lambda port: self.reach(*port, act), self.ports(launched)))
        launched.at_step(before + 2)
        print(f"{name}: {time.monotonic() - began:.1f} s, {self.step(launched) - before} steps", flush=True)
        return kept

    def refuse_keys(self, launched, mine, jobs_of_others):
        """Whoever has no key of this start is turned away, whatever else it knows. `mine`: a job of this start."""

        def act(place, pid):
            name, server = self.server(launched, pid)
            at = f"{place[0]}:{place[1]}"
            callers = [("plain", None), (mine["process"], ("", "", "")), (mine["process"], (server, "", ""))]
            callers += [(job["process"], (server, job["public_key"], job["secret_key"])) for job in jobs_of_others]

            def call(caller):
                own, keys = caller
                words = ("plain", at, 20) if keys is None else ("link", at, own, name, mine["run"], mine["generation"])
                return words, stranger(*words, keys=keys)

            with concurrent.futures.ThreadPoolExecutor() as pool:
                for words, (is_in, said) in pool.map(call, callers):
                    self.assertFalse(is_in, f"{words}: {said}")

        self.attack(f"{3 + len(jobs_of_others)} peers without a key of this start", launched, act, at_once=4)

    def replay(self, launched, recorders):
        sent = []

        def act(place, _):
            for stream in sum((recorder.streams_to(place[1])[:4] for recorder in recorders), []):
                for cut in (len(stream), self.choose.randrange(len(stream)) + 1):
                    sent.append(send_all(place, [stream[:cut]], 5))

        self.attack("recorded streams, again", launched, act)
        self.assertGreater(sum(sent), 0, "nothing was recorded")

    def fill_memory_and_connections(self, launched):
        def flooded(place, _):
            sockets = flood(place, CONNECTIONS)
            for one in sockets:
                one.close()
            return len(sockets)

        zeros = self.attack("zeros", launched, lambda place, _: send_zeros(place, ZEROS))
        standing = self.attack("connections", launched, flooded, at_once=4)
        print(f"zeros taken: {max(zeros) >> 20} of {2 * ZEROS >> 20} MiB at most; connections standing: {standing}", flush=True)

    def attack_all(self, launched, mine, jobs_of_others, recorders):
        """All attacks, one after the other; afterwards the run listens where it did. See refuse_keys and replay."""
        ports = self.ports(launched)
        listed = ", ".join(f"{place[0]}:{place[1]}" for place, _ in ports)
        print(f"seed {SEED}; {len(ports)} ports of {len(set(pid for _, pid in ports))} processes: {listed}", flush=True)
        open_ones = self.attack("silent connections", launched, lambda place, _: say_nothing(place), at_once=4)
        self.attack("garbage", launched, lambda place, _: send_garbage(place, self.choose))
        self.refuse_keys(launched, mine, jobs_of_others)
        if recorders:
            self.replay(launched, recorders)
        self.fill_memory_and_connections(launched)
        for sockets in open_ones:
            for one in sockets:
                one.close()
        self.assertEqual(self.ports(launched), ports)

    def assert_same_as_quiet(self, run, settings, loud):
        """A run with these settings that is not attacked has the same curve, and little less memory. `loud`: the peaks
        of the run that was attacked."""
        last = run.metrics()[-1]["step"]
        quiet = self.start("quiet", settings)
        watch = self.watch_memory(quiet)
        quiet.at_step(last)
        quiet.end_by(signal.SIGTERM, 0)
        peaks = watch.stop()
        expected = {step: one for step, one in quiet.run.curve().items() if step <= last}
        self.assert_same_bits((expected, {}), (run.curve(), {}))
        print(f"{last} steps")
        self.assert_little_memory(loud, peaks)

    def assert_little_memory(self, loud, quiet):
        growth = {name: loud[name] - quiet[name] for name in quiet}
        print(f"peak memory beside a quiet run, MiB: {({name: round(more / (1 << 20), 1) for name, more in growth.items()})}", flush=True)
        for name, more in growth.items():
            self.assertLess(more, MOST_MEMORY, name)
