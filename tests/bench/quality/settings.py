"""The codecs that the quality bench compares: name -> recipe keys under [codec]."""


def raw(wire_dtype):
    return {"wire_dtype": wire_dtype}


def coded(kind, forward_bits, backward_bits, first_bits=None):
    codec = {"forward": kind, "forward_bits": forward_bits, "backward": "transform" if kind == "transform" else "fixed",
             "backward_bits": backward_bits}
    return codec | ({"first_bits": first_bits} if first_bits else {})


def named(kind, bits):
    """A row for each of these: bits forward and backward, and at a sample's first visit."""
    for one in bits.split():
        forward, backward, *first = map(int, one.split("/"))
        name = f"{kind} {forward}/{backward}" + (f", first {first[0]}" if first else "")
        yield name, coded(kind, forward, backward, *first)


RAW = "raw fp32"
BF16 = "raw bf16"

# In the order in which they are run: what the others are compared with comes first.
SETTINGS = {
    RAW: raw("float32"),
    BF16: raw("bfloat16"),
    **dict(named("delta", "4/8/5 4/4/5 3/6/4 2/4/4 3/6/5")),
    **dict(named("fixed", "4/8 4/4 3/6 2/4")),
    **dict(named("delta", "6/8/8 6/6/8 6/5/8 5/8/8 5/6/8 5/5/8 4/8/8 4/6/8 4/5/8 4/4/8 3/6/8 2/4/8")),
    "delta 2/4, first 8, groups of 32": coded("delta", 2, 4, 8) | {"group": 32},
    **{f"delta 4/delta {bits}, first 8": coded("delta", 4, bits, 8) | {"backward": "delta"} for bits in (5, 3, 2)},
    **dict(named("transform", "6/6/6 4/5/6 4/4/6 6/6/8 5/6/8 4/6/8 4/5/8 6/6/7 4/5/7")),
    "auto": {"forward": "auto", "backward": "auto"},
    "delta 4/8, first bf16": coded("delta", 4, 8, 16),
    "delta 2/4, first bf16": coded("delta", 2, 4, 16),
}


def recipe(name, learning_rate):
    """Recipe keys of a row, in full."""
    return {"train.learning_rate": learning_rate, **{f"codec.{key}": value for key, value in SETTINGS[name].items()}}
