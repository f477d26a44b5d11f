"""Include paths and definitions of a build, by room, from its compilation database."""

import json
import pathlib
import shlex

from source_files import ROOT


def room_flags(build):
    flags = {}
    for entry in json.loads((pathlib.Path(build) / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        if ROOT not in source.parents:
            continue
        room = str(source.parent.relative_to(ROOT))
        words = shlex.split(entry["command"])
        kept = flags.setdefault(room, [])
        for index, word in enumerate(words):
            if word in ("-isystem", "-idirafter"):
                wanted = [word, words[index + 1]]
            else:
                wanted = [word] if word.startswith(("-I", "-D", "-std")) else []
            if wanted and wanted not in kept:
                kept.append(wanted)
    return {room: sum(kept, []) for room, kept in flags.items()}
