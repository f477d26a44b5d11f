"""Include paths and definitions of a build, by room, from its compilation database."""

import json
import pathlib
import re
import shlex

from source_files import ROOT


def room_flags(build):
    flags = {}
    for entry in json.loads((pathlib.Path(build) / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        if source.suffix == ".cu":  # in the emulation of a GPU
            continue
        # A unit of several sources lies in the build, below the room's folder there.
        unit = re.match(r"(.*)/CMakeFiles/[^/]*\.dir/Unity/", str(source))
        folder, top = (pathlib.Path(unit[1]), pathlib.Path(build).resolve()) if unit else (source.parent, ROOT)
        if top not in (folder, *folder.parents):
            continue
        room = str(folder.relative_to(top))
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
