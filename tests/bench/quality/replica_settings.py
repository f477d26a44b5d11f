"""The ways of keeping replicas together that the quality bench compares."""

import dataclasses

REPLICAS = 4


@dataclasses.dataclass(frozen=True)
class Setting:
    """One row: keys of [sync], and what differs from the reference besides."""

    sync: dict
    times_rate: float = 1
    stages: int = 1
    codec: dict = dataclasses.field(default_factory=dict)

    def recipe(self, learning_rate):
        return {
            "pipeline.stages": self.stages,
            "pipeline.replicas": REPLICAS,
            "train.learning_rate": learning_rate * self.times_rate,
            **{f"sync.{key}": value for key, value in self.sync.items()},
            **{f"codec.{key}": value for key, value in self.codec.items()},
        }


def setting(method, times_rate=1, **sync):
    return Setting({"method": method, **sync}, times_rate)


def cocktail(random, top, bits, times_rate=1):
    return setting("cocktail", times_rate, random=random, top=top, bits=bits)


def on_two_stages(one):
    codec = {"forward": "delta", "forward_bits": 4, "backward": "fixed", "backward_bits": 8}
    return dataclasses.replace(one, stages=2, codec=codec)


RAW = "allreduce"
TWICE = ", twice the rate"  # each replica's AdamW sees few rows: what suits all of them may be low

# In the order in which they are run: what the others are compared with comes first.
SETTINGS = {
    RAW: setting("allreduce", wire_dtype="float32"),
    "cocktail .1/.2/4": cocktail(0.1, 0.2, 4),
    "cocktail .1/.2/4" + TWICE: cocktail(0.1, 0.2, 4, 2),
    "allreduce" + TWICE: setting("allreduce", 2, wire_dtype="float32"),
    "diloco every 20": setting("diloco", every=20),
    "powersgd rank 2": setting("powersgd", rank=2),
    "cocktail .1/.13/4": cocktail(0.1, 0.13, 4),
    "cocktail .1/.1/4": cocktail(0.1, 0.1, 4),
    "streaming_diloco every 20, 2 fragments": setting("streaming_diloco", every=20, fragments=2),
    "cocktail .1/.2/4, two stages, delta 4/8": on_two_stages(cocktail(0.1, 0.2, 4)),
    "powersgd rank 4": setting("powersgd", rank=4),
    "onebit_adam": setting("onebit_adam"),
    "noloco every 20": setting("noloco", every=20),
    "cocktail .075/.2/4": cocktail(0.075, 0.2, 4),
    "cocktail .1/.13/4" + TWICE: cocktail(0.1, 0.13, 4, 2),
    "cocktail .1/.1/4" + TWICE: cocktail(0.1, 0.1, 4, 2),
    "cocktail .075/.2/4" + TWICE: cocktail(0.075, 0.2, 4, 2),
    "cocktail .1/.2/4, two stages, delta 4/8" + TWICE: on_two_stages(cocktail(0.1, 0.2, 4, 2)),
    "diloco every 20" + TWICE: setting("diloco", 2, every=20),
    "powersgd rank 2" + TWICE: setting("powersgd", 2, rank=2),
    "streaming_diloco every 20, 2 fragments"
    + TWICE: setting("streaming_diloco", 2, every=20, fragments=2),
    "noloco every 20" + TWICE: setting("noloco", 2, every=20),
}


def recipe(name, learning_rate):
    """Recipe keys of a row, in full."""
    return SETTINGS[name].recipe(learning_rate)
