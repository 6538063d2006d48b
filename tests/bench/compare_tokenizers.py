#!/usr/bin/env python3
"""Speed of Corbel's tokenizers beside the `tokenizers` package on one thread, in one interleaved run.

    tests/bench/compare_tokenizers.py MODEL.gguf TEXT --program BUILD/tokenizer_speed [--rounds 9] [--bytes 1000000]

MODEL is a GGUF file of a byte-level vocabulary with SmolLM2's pre-tokenizer; the reference's tokenizer is built from its
pieces and merges. Run it with a Python that has `tokenizers` and `gguf`. The program is tokenizer_speed.cpp:

    c++ -std=c++20 -O3 -Iinclude tests/bench/tokenizer_speed.cpp BUILD/libcorbel.a -lfmt -lpthread -o tokenizer_speed

Times are CPU times of the thread that works; each round measures both, in turn first. Ids and texts must be equal.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"


def reference_json(path):
    """The tokenizer.json of a GGUF file with a byte-level vocabulary."""
    from gguf import GGUFReader

    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": types[i] == 3} for i, t in enumerate(tokens) if types[i] in (3, 4)]
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {t: i for i, t in enumerate(tokens)}, "merges": fields["tokenizer.ggml.merges"].contents()}})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--bytes", type=int, default=1_000_000)
    args = parser.parse_args()

    import tokenizers

    text = pathlib.Path(args.text).read_bytes()[: args.bytes].decode("utf-8", "ignore")
    with tempfile.TemporaryDirectory() as folder:
        document = pathlib.Path(folder, "tokenizer.json")
        document.write_text(reference_json(args.model), encoding="utf-8")
        sample = pathlib.Path(folder, "text")
        sample.write_bytes(text.encode())
        peer = tokenizers.Tokenizer.from_file(str(document))
        ids = peer.encode(text, add_special_tokens=False).ids
        lines = text.splitlines(keepends=True) if "\r" not in text else text.split("\n")

        def load():
            return tokenizers.Tokenizer.from_file(str(document)).get_vocab_size()

        work = {
            "encode": lambda: len(peer.encode(text, add_special_tokens=False).ids),
            "lines": lambda: sum(len(peer.encode(line, add_special_tokens=False).ids) for line in lines),
            "decode": lambda: len(peer.decode(ids, skip_special_tokens=False).encode()),
            "load": load,
        }
        ours = {}
        for name, path in (("gguf", args.model), ("json", str(document))):
            ours[name] = subprocess.Popen([args.program, path, str(sample)], stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, text=True)

        def ask(name, command):
            ours[name].stdin.write(command + "\n")
            ours[name].stdin.flush()
            seconds, count = ours[name].stdout.readline().split()
            return float(seconds), int(count)

        def ask_peer(command):
            begin = time.thread_time()
            count = work[command]()
            return time.thread_time() - begin, count

        print(f"tokenizers {tokenizers.__version__}, {len(text.encode())} bytes, {len(ids)} ids, {args.rounds} rounds")
        failed = False
        for command in work:
            times = {"gguf": [], "json": [], "peer": []}
            for turn in range(args.rounds):
                order = list(times) if turn % 2 == 0 else list(times)[::-1]
                counts = set()
                for name in order:
                    seconds, count = ask_peer(command) if name == "peer" else ask(name, command)
                    times[name].append(seconds)
                    counts.add(count)
                if len(counts) != 1:
                    print(f"{command}: counts differ: {counts}")
                    failed = True
            middle = {name: statistics.median(seconds) for name, seconds in times.items()}
            print(f"{command:7} peer {middle['peer'] * 1e3:8.2f} ms   gguf {middle['gguf'] * 1e3:8.2f} ms "
                  f"({middle['peer'] / middle['gguf']:.1f}x)   json {middle['json'] * 1e3:8.2f} ms "
                  f"({middle['peer'] / middle['json']:.1f}x)")
        for process in ours.values():
            process.stdin.close()
            process.wait()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
