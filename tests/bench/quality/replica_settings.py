"""The ways of keeping replicas together that the quality bench compares."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Setting:
    """One row: keys of [sync], and what differs from the reference besides."""

    sync: dict
    times_rate: float = 1
    stages: int = 1
    codec: dict = dataclasses.field(default_factory=dict)

    def recipe(self, learning_rate):
        return {
            "pipeline.stages": self.stages, "train.learning_rate": learning_rate * self.times_rate,
            **{f"sync.{key}": value for key, value in self.sync.items()},
            **{f"codec.{key}": value for key, value in self.codec.items()},
        }


def setting(method, **sync):
    return Setting({"method": method, **sync})


def cocktail(random, top, bits, **sync):
    return setting("cocktail", random=random, top=top, bits=bits, **sync)


def on_two_stages(one):
    codec = {"forward": "delta", "forward_bits": 4, "backward": "fixed", "backward_bits": 8}
    return dataclasses.replace(one, stages=2, codec=codec)


def without_outer_step(one):
    return dataclasses.replace(one, sync={**one.sync, "outer_learning_rate": 1, "outer_momentum": 0})


RAW = "allreduce"

AT_TASKS_RATE = {
    RAW: setting("allreduce", wire_dtype="float32"), "cocktail .1/.2/4": cocktail(0.1, 0.2, 4),
    "cocktail .1/.2/4, no outer step": without_outer_step(cocktail(0.1, 0.2, 4)),
    "cocktail .12/1/1": cocktail(0.12, 1, 1), "cocktail .1/1/1": cocktail(0.1, 1, 1),
    "cocktail .08/1/1": cocktail(0.08, 1, 1), "cocktail .08/.35/3": cocktail(0.08, 0.35, 3),
    "cocktail .1/.13/4": cocktail(0.1, 0.13, 4), "cocktail .5/.5/4": cocktail(0.5, 0.5, 4),
    "cocktail 1/1/8": cocktail(1, 1, 8),
    "allreduce, two stages, delta 4/8": on_two_stages(setting("allreduce", wire_dtype="float32")),
    "cocktail .1/.2/4, two stages, delta 4/8": on_two_stages(cocktail(0.1, 0.2, 4)),
    "cocktail .12/1/1, two stages, delta 4/8": on_two_stages(cocktail(0.12, 1, 1)),
    "diloco every 20": setting("diloco", every=20),
    "streaming_diloco every 20, 2 fragments": setting("streaming_diloco", every=20, fragments=2),
    "powersgd rank 2": setting("powersgd", rank=2), "powersgd rank 4": setting("powersgd", rank=4),
    "onebit_adam": setting("onebit_adam"), "bytegrad": setting("bytegrad"),
    "noloco every 20": setting("noloco", every=20),
}

# Each replica's AdamW sees few rows, which makes its steps small: what suits all may be low for it.
RATES = {"": 1, ", twice the rate": 2, ", four times the rate": 4, ", eight times the rate": 8}

# What the others are compared with comes first.
SETTINGS = {
    name + words: dataclasses.replace(one, times_rate=times)
    for name, one in AT_TASKS_RATE.items()
    for words, times in RATES.items()
}


def recipe(name, learning_rate):
    """Recipe keys of a row; Sizes.replica_count says of how many replicas."""
    return SETTINGS[name].recipe(learning_rate)
