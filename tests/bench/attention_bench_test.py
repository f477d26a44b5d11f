"""attention_bench builds, runs, and prints a row for every way. Speed and memory are not judged here."""

import quick_run


def main():
    quick_run.skip_without_libtorch()
    printed = quick_run.built("attention_bench", "1", "128")
    for way in ("by document", "window of an eighth", "dropout", "libtorch, mask"):
        assert printed.count(way) == 3, printed
    assert printed.count("libtorch, causal") == 1, printed


if __name__ == "__main__":
    main()
