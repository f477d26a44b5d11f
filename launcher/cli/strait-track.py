"""Sends the metrics of a run to a tracker: reads metrics.jsonl and events.jsonl, as docs/metrics.md describes them, and
stores in tracked.json how far it has come. A step is sent once, also where a resume has trained it again.

    strait-track.py RUN --to tensorboard|prometheus|wandb|mlflow|trackio [--project NAME] [--port N] [--pid LAUNCHER]
"""

import argparse
import errno
import http.server
import json
import os
import pathlib
import re
import socket
import struct
import sys
import threading
import time

LOOK_EVERY = 2  # seconds
# Exit codes of strait.
BAD_INPUT, STORAGE_FULL, STORAGE_IO, CORRUPT = 10, 30, 31, 32


def refuse(code, sentence):
    print(f"strait: {sentence}", file=sys.stderr)
    sys.exit(code)


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
    """Environments of hosts may hold passwords."""
    for hosts in ("list", "spare"):
        for host in recipe.get("hosts", {}).get(hosts, []):
            if isinstance(host, dict):
                host.pop("environment", None)
    return recipe


class Tracker:
    def event(self, event):
        """Of events.jsonl; evaluations are logged, too."""

    def close(self):
        """Nothing more comes."""


class Wandb(Tracker):
    def __init__(self, given, name, settings, known):
        import wandb
        self._run = wandb.init(project=given.project, name=name, id=known, resume="allow", config=settings)
        self.id = self._run.id

    def log(self, step, numbers):
        self._run.log(numbers, step=step)

    def close(self):
        self._run.finish()


class Mlflow(Tracker):
    def __init__(self, given, name, settings, known):
        import mlflow
        self._mlflow = mlflow
        mlflow.set_experiment(given.project)
        self.id = mlflow.start_run(run_id=known, run_name=None if known else name).info.run_id
        if not known:
            mlflow.log_params(settings)

    def log(self, step, numbers):
        # MLflow's names have no ">".
        self._mlflow.log_metrics({re.sub(r"[^\w/. -]", "-", tag): one for tag, one in numbers.items()}, step=step)

    def close(self):
        self._mlflow.end_run()


class Trackio(Tracker):
    def __init__(self, given, name, settings, known):
        import trackio
        self._trackio = trackio
        self.id = known or name
        trackio.init(project=given.project, name=self.id, config=settings, resume="allow")

    def log(self, step, numbers):
        self._trackio.log(numbers, step=step)

    def close(self):
        self._trackio.finish()


class TensorBoard(Tracker):
    """Event files in the run's directory: records of TFRecord, each with an Event of TensorBoard's protocol buffers."""

    CRC = []  # of CRC-32C, for each byte
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        CRC.append(byte)

    def __init__(self, given, name, settings, known):
        self.id = name
        self._path = given.run / f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
        self._file = None

    def log(self, step, numbers):
        if self._file is None:
            self._file = open(self._path, "wb")
            self._write(self._field(3, b"brain.Event:2"))
        values = (self._field(1, tag.encode()) + b"\x15" + struct.pack("<f", one) for tag, one in numbers.items())
        self._write(b"\x10" + self._varint(step) + self._field(5, b"".join(self._field(1, one) for one in values)))

    def _write(self, event):
        event = b"\x09" + struct.pack("<d", time.time()) + event
        size = struct.pack("<Q", len(event))
        self._file.write(size + self._checksum(size) + event + self._checksum(event))
        self._file.flush()

    def _checksum(self, data):
        crc = 0xFFFFFFFF
        for byte in data:
            crc = crc >> 8 ^ self.CRC[(crc ^ byte) & 0xFF]
        crc ^= 0xFFFFFFFF
        return struct.pack("<I", (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF)

    @staticmethod
    def _varint(number):
        data = b""
        while number > 127:
            data += bytes([number & 127 | 128])
            number >>= 7
        return data + bytes([number])

    def _field(self, number, data):
        return bytes([number << 3 | 2]) + self._varint(len(data)) + data


class Prometheus(Tracker):
    """Answers with the latest metrics of a live run on 127.0.0.1."""

    COUNTED = {"tokens", "targets", "skipped", "raw_bytes", "sent_bytes", "bfloat16_bytes", "hits", "first_visits",
               "evictions", "resends", "rounds", "round_seconds", "waited_seconds"}
    LABELS = {"train": ("process",), "boundary": ("boundary", "direction"), "sync": ("process",)}

    def __init__(self, given, name, settings, known):
        self.id = name
        self._values = {}  # name -> labels as they are written -> value
        page = self.page

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                known = self.path.partition("?")[0] == "/metrics"
                body = page().encode() if known else b"the metrics are at /metrics\n"
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                """Requests are not news."""

        try:
            server = http.server.ThreadingHTTPServer(("127.0.0.1", given.port), Handler)
        except OSError as error:
            refuse(BAD_INPUT, f"port {given.port} of 127.0.0.1 cannot be bound ({error.strerror}); choose another "
                   "--port")
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def log(self, step, numbers):
        for tag, one in numbers.items():
            group, key, *labels = tag.split("/")
            if group == "eval":
                self._values["strait_evaluation_loss"] = {"": one}
                continue
            counted = key in self.COUNTED or key.startswith("bytes_")
            name = f"strait_{'' if group == 'train' else group + '_'}{key}{'_total' if counted else ''}"
            text = ",".join(f'{label}="{value}"' for label, value in zip(self.LABELS[group], labels))
            # A page is made of whole families: the next one replaces the former.
            family = dict(self._values.get(name, {}))
            family[text] = one + family.get(text, 0) if counted else one
            self._values[name] = family
        self._values["strait_step"] = {"": step}

    def event(self, event):
        if event["event"] == "checkpoint":
            self._values["strait_checkpoint_step"] = {"": event["step"]}
        elif event["event"] == "training":
            self._values["strait_steps"] = {"": event["to"]}
            self._values.setdefault("strait_restarts_total", {"": 0})
        elif event["event"] == "restart":
            self._values["strait_restarts_total"] = {"": self._values.get("strait_restarts_total", {"": 0})[""] + 1}

    def page(self):
        text = ""
        for name, family in sorted(self._values.copy().items()):
            text += f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}\n"
            text += "".join(f"{name}{{{labels}}} {one}\n" if labels else f"{name} {one}\n" for labels, one in family.items())
        return text


TRACKERS = {"tensorboard": TensorBoard, "prometheus": Prometheus, "wandb": Wandb, "mlflow": Mlflow, "trackio": Trackio}


class Followed:
    """The whole lines of a file as they come, but for those that are damaged: objects that lack `key`, or no objects. A
    resume replaces metrics.jsonl by a shorter one."""

    def __init__(self, path, key):
        self._path, self._key, self._file, self._rest = path, key, None, ""

    def lines(self):
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return
        if self._file is None or status.st_ino != os.fstat(self._file.fileno()).st_ino or status.st_size < self._file.tell():
            self._file, self._rest = open(self._path, encoding="utf-8", errors="replace"), ""
        while text := self._file.readline():
            self._rest += text
            if not self._rest.endswith("\n"):
                return
            line, self._rest = self._rest, ""
            try:
                read = json.loads(line)
            except ValueError:
                continue
            if isinstance(read, dict) and self._key in read:
                yield read


class Position:
    """How far each tracker of a run has come. Prometheus begins anew: its counters are those of the whole run."""

    def __init__(self, run, to):
        self._file = None if to == "prometheus" else run / "tracked.json"
        try:
            self._all = json.loads(self._file.read_text()) if self._file and self._file.exists() else {}
        except ValueError as error:
            refuse(CORRUPT, f"{self._file} is damaged ({error}); remove it, and all steps are sent once more")
        self.own = self._all.setdefault(to, {"id": None, "step": 0, "evaluated": -1})

    def store(self):
        if self._file is not None:
            next_file = self._file.with_suffix(".next")
            next_file.write_text(json.dumps(self._all))
            next_file.replace(self._file)


def send_new(tracker, own, metrics, events):
    """The number of steps that were sent."""
    found = {}
    for line in metrics.lines():
        if line["step"] > own["step"]:
            numbers = ((tag, one) for tag, one in numbers_of(line) if isinstance(one, (int, float)))
            found.setdefault(line["step"], {}).update(numbers)
            own["step"] = line["step"]
    # After the steps: trackers take no number of a step before one that they have.
    for event in events.lines():
        tracker.event(event)
        if event["event"] == "evaluated" and event["step"] > own["evaluated"]:
            found.setdefault(event["step"], {})["eval/loss"] = event["loss"]
            own["evaluated"] = event["step"]
    for step, numbers in sorted(found.items()):
        tracker.log(step, numbers)
    return len(found)


def main():
    words = argparse.ArgumentParser()
    words.add_argument("run", type=pathlib.Path)
    words.add_argument("--to", choices=TRACKERS, required=True)
    words.add_argument("--project", default="strait")
    words.add_argument("--port", type=int, default=9400)
    words.add_argument("--pid", type=int, help="of the launcher that is live")
    given = words.parse_args()
    if given.to == "prometheus" and given.pid is None:
        refuse(BAD_INPUT, f"no run is live in {given.run}, and Prometheus asks for the metrics of a live one; send "
               "those of a run that has ended to another tracker, such as --to tensorboard")
    try:
        follow(given)
    except OSError as error:  # of a tracker's connection it has no file
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            refuse(STORAGE_FULL, f"cannot write to {given.run}: {error.strerror}")
        if error.filename is None:
            raise
        code = BAD_INPUT if error.errno in (errno.EACCES, errno.EPERM) else STORAGE_IO
        refuse(code, f"cannot use {error.filename}: {error.strerror}")


def follow(given):
    position = Position(given.run, given.to)
    recipe = without_secrets(json.loads((given.run / "plan.json").read_text())["plan"]["recipe"])
    try:
        tracker = TRACKERS[given.to](given, recipe["name"], dict(flat(recipe)), position.own["id"])
    except ImportError as error:
        refuse(BAD_INPUT, f"{given.to} is not installed for {sys.executable} ({error}); install it there, or set "
               "STRAIT_PYTHON to a Python that has it")
    position.own["id"] = tracker.id
    metrics, events = Followed(given.run / "metrics.jsonl", "step"), Followed(given.run / "events.jsonl", "event")
    sent, live = 0, True
    try:
        while live:
            live = given.pid is not None and os.path.exists(f"/proc/{given.pid}")
            sent += send_new(tracker, position.own, metrics, events)
            position.store()
            if live:
                time.sleep(LOOK_EVERY)
    except KeyboardInterrupt:
        pass  # what was sent is stored
    tracker.close()
    print(f"{given.run}: {sent} steps sent to {given.to}, up to step {position.own['step']}; run {position.own['id']}")


if __name__ == "__main__":
    main()
