"""The codecs that the quality bench compares: name -> recipe keys under [codec]."""


def raw(wire_dtype):
    return {"wire_dtype": wire_dtype}


def fixed(forward_bits, backward_bits, **more):
    return {
        "forward": "fixed",
        "forward_bits": forward_bits,
        "backward": "fixed",
        "backward_bits": backward_bits,
        **more,
    }


def delta(forward_bits, backward_bits, first_bits, **more):
    return fixed(forward_bits, backward_bits, first_bits=first_bits, **more) | {"forward": "delta"}


def transform(forward_bits, backward_bits, first_bits):
    return fixed(forward_bits, backward_bits, first_bits=first_bits) | {"forward": "transform", "backward": "transform"}


RAW = "raw fp32"
BF16 = "raw bf16"

# In the order in which they are run: what the others are compared with comes first.
SETTINGS = {
    RAW: raw("float32"),
    BF16: raw("bfloat16"),
    "delta 4/8, first 5": delta(4, 8, 5),
    "delta 4/4, first 5": delta(4, 4, 5),
    "delta 3/6, first 4": delta(3, 6, 4),
    "delta 2/4, first 4": delta(2, 4, 4),
    "delta 3/6, first 5": delta(3, 6, 5),
    "fixed 4/8": fixed(4, 8),
    "fixed 4/4": fixed(4, 4),
    "fixed 3/6": fixed(3, 6),
    "fixed 2/4": fixed(2, 4),
    "delta 6/8, first 8": delta(6, 8, 8),
    "delta 6/6, first 8": delta(6, 6, 8),
    "delta 6/5, first 8": delta(6, 5, 8),
    "delta 5/8, first 8": delta(5, 8, 8),
    "delta 5/6, first 8": delta(5, 6, 8),
    "delta 5/5, first 8": delta(5, 5, 8),
    "delta 4/8, first 8": delta(4, 8, 8),
    "delta 4/6, first 8": delta(4, 6, 8),
    "delta 4/5, first 8": delta(4, 5, 8),
    "delta 4/4, first 8": delta(4, 4, 8),
    "delta 3/6, first 8": delta(3, 6, 8),
    "delta 2/4, first 8": delta(2, 4, 8),
    "delta 2/4, first 8, groups of 32": delta(2, 4, 8, group=32),
    "delta 4/delta 5, first 8": delta(4, 5, 8, backward="delta"),
    "delta 4/delta 3, first 8": delta(4, 3, 8, backward="delta"),
    "delta 4/delta 2, first 8": delta(4, 2, 8, backward="delta"),
    "transform 6/6, first 6": transform(6, 6, 6),
    "transform 4/5, first 6": transform(4, 5, 6),
    "transform 4/4, first 6": transform(4, 4, 6),
    "transform 6/6, first 8": transform(6, 6, 8),
    "transform 5/6, first 8": transform(5, 6, 8),
    "transform 4/6, first 8": transform(4, 6, 8),
    "transform 4/5, first 8": transform(4, 5, 8),
    "auto": {"forward": "auto", "backward": "auto"},
    "delta 4/8, first bf16": delta(4, 8, 16),
    "delta 2/4, first bf16": delta(2, 4, 16),
}


def recipe(name, learning_rate):
    """Recipe keys of a row, in full."""
    return {
        "train.learning_rate": learning_rate,
        **{f"codec.{key}": value for key, value in SETTINGS[name].items()},
    }
