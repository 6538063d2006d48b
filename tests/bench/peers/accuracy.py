#!/usr/bin/env python3
"""Distance of Corbel's levels and of llama.cpp from Corbel's backend `ref`, on the same files and the same token ids.

    tests/bench/peers/accuracy.py                              the whole set: an hour
    tests/bench/peers/accuracy.py --models smollm2-q4_1        one file
    tests/bench/peers/accuracy.py --models some.gguf --text some.txt
    tests/bench/peers/accuracy.py --doc docs/accuracy.md       measures nothing: the page of the documentation from the last result

README.md beside this file says what is measured, and how.
"""

import argparse
import datetime
import hashlib
import json
import math
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

import peers
import worker

# Name: file, from which model, and the type to convert it to. Those of peers.py are taken from there.
SMOLLM2 = {
    f"smollm2-{type.lower()}": (f"SmolLM2-135M-Instruct.{type}.gguf", "smollm2-q4_1", type)
    for type in ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q5_0", "Q5_1", "F16", "BF16"]
}
MODELS = {**{name: None for name in ["smollm2-q4_1", "smollm2-q4_0", "smollm2-q8_0", "gemma3-q4_k_m"]}, **SMOLLM2}

# Name: flags of `corbel logits`, or the members of llama.cpp's context that are not at their defaults.
LEVELS = {level: ["--isa", level] for level in ["base", "avx2", "avx512", "amx"]}
REFERENCE = ["--backend", "ref", "--kv", "f32"]
LLAMA = {"llama.cpp": {}, "llama.cpp, no flash attention": {"flash_attn_type": 0}}

MOST_RATIO, MOST_POINTS = 1.1, 0.2  # limits: mean KL against llama.cpp's, and perplexity in % beyond llama.cpp's distance
BLOCK = 32  # positions that count as one sample for the error of a ratio


def make_model(name, args):
    if name not in SMOLLM2:
        return peers.make_model(name, args)
    file, source, kind = SMOLLM2[name]
    path = args.model_folder / file
    if not path.exists():
        part = path.with_name("part-" + file)
        peers.checked([args.corbel, "convert", peers.make_model(source, args), part, "--type", kind])
        part.rename(path)
    return path


# ---- token ids


def default_text():
    """The wikitext of the test data where that is set, else the documentation of this repository."""
    data = os.environ.get("CORBEL_TEST_DATA")
    if data and (path := pathlib.Path(data) / "text" / "wikitext-2-test.txt").is_file():
        return [path]
    return sorted((peers.ROOT / "docs").glob("*.md")) + sorted((peers.ROOT / "docs").glob("*/*.md"))


def windows_of(path, args):
    """Lists of args.window ids; the first of each is BOS where the file asks for it, as in `corbel perplexity`."""
    text = b"\n".join(file.read_bytes() for file in args.text)[: 64 * args.window * args.windows]
    text = text.decode(errors="ignore").encode()
    answer = subprocess.run([args.corbel, "tokenize", path], input=text, capture_output=True, check=True)
    ids = json.loads(answer.stdout)
    ids = ids["ids"] if isinstance(ids, dict) else ids
    answer = subprocess.run([args.corbel, "inspect", "--json", path], capture_output=True, text=True, check=True)
    keys = json.loads(answer.stdout)["metadata"]
    bos = keys["tokenizer.ggml.bos_token_id"] if keys.get("tokenizer.ggml.add_bos_token") else None
    if bos is not None:
        ids.insert(0, bos)
    pieces = [ids[i : i + args.window] for i in range(0, len(ids) - args.window + 1, args.window)][: args.windows]
    return [piece if bos is None else [bos, *piece[1:]] for piece in pieces], bos is not None


# ---- logits


def corbel_logits(path, ids, flags, out, args):
    """[position, vocabulary] of `corbel logits`, mapped from the file `out`, which is kept if there."""
    import numpy

    if not out.exists():
        ids_file, part = out.with_suffix(".ids"), out.with_suffix(".part")
        ids_file.write_text(json.dumps(ids))
        command = [args.corbel, "logits", path, "--ids", ids_file, "--out", part, "--threads", args.threads, *flags]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        ids_file.unlink()
        if done.returncode != 0:
            raise RuntimeError(peers.last_line(done.stderr) or f"exit code {done.returncode}")
        part.rename(out)
    return numpy.memmap(out, dtype="<f4", mode="r").reshape(len(ids), -1)


class Llama(worker.Llama):
    """llama.cpp with the logits of every position."""

    def __init__(self, path, args, **params):
        super().__init__("llama.cpp", str(path), argparse.Namespace(depth=0, prompt=args.window, gen=0, batch=1, threads=args.threads), **params)
        self.load()

    def logits(self, ids):
        """[position, vocabulary], valid until the next call."""
        self.clear()
        batch = self.room
        for i, id in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = id, i, 1, 1
            batch.seq_id[i][0] = 0
        batch.n_tokens = len(ids)
        status = self.api.llama_decode(self.context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode answered {status}")
        return self.as_array(self.api.llama_get_logits(self.context), shape=(len(ids), self.vocab))

    def close(self):
        self.api.llama_batch_free(self.room)
        self.api.llama_free(self.context)
        self.api.llama_model_free(self.model)


# ---- figures


def compare(reference, other, ids):
    """Per position: KL(reference || other), whether the likeliest id is the same, -log p(next id) of both (0 for the last); in double."""
    import numpy

    kl, same, nll = [], [], [[], []]
    for begin in range(0, len(ids), 64):
        rows = slice(begin, min(begin + 64, len(ids)))
        logs = []
        for logits in (reference, other):
            row = logits[rows].astype(numpy.float64)
            row -= row.max(axis=1, keepdims=True)
            logs.append(row - numpy.log(numpy.exp(row).sum(axis=1, keepdims=True)))
        kl += (numpy.exp(logs[0]) * (logs[0] - logs[1])).sum(axis=1).tolist()
        same += (logs[0].argmax(axis=1) == logs[1].argmax(axis=1)).tolist()
        for k in range(2):
            nll[k] += [-float(logs[k][i, ids[begin + i + 1]]) if begin + i + 1 < len(ids) else 0.0 for i in range(logs[k].shape[0])]
    return kl, same, nll


class Totals:
    """All positions of one way to compute, beside the reference."""

    def __init__(self):
        self.kl, self.same, self.nll, self.targets = [], [], [0.0, 0.0], 0

    def add(self, reference, other, ids):
        kl, same, nll = compare(reference, other, ids)
        self.kl += kl
        self.same += same
        self.nll = [total + sum(more) for total, more in zip(self.nll, nll)]
        self.targets += len(ids) - 1

    def perplexity(self, which):
        return math.exp(self.nll[which] / self.targets)

    def figures(self):
        return {
            "mean_kl": sum(self.kl) / len(self.kl),
            "median_kl": sorted(self.kl)[len(self.kl) // 2],
            "p99_kl": sorted(self.kl)[len(self.kl) * 99 // 100],
            "max_kl": max(self.kl),
            "same_top": sum(self.same) / len(self.same),
            "perplexity": self.perplexity(1),
            "perplexity_percent": 100 * (self.perplexity(1) / self.perplexity(0) - 1),
        }


def ratio(ours, theirs):
    """Mean KL over mean KL, and its standard error from blocks of positions."""
    blocks = [(sum(ours[i : i + BLOCK]), sum(theirs[i : i + BLOCK])) for i in range(0, len(ours), BLOCK)]
    bottom = sum(b for _, b in blocks)
    if bottom == 0:
        return None, None
    value = sum(a for a, _ in blocks) / bottom
    return value, math.sqrt(sum((a - value * b) ** 2 for a, b in blocks)) / bottom


def judge(totals):
    """{way: figures}; those of Corbel with their ratio to llama.cpp as it is by default, and whether they are within the limits."""
    found = {way: one.figures() for way, one in totals.items()}
    peer = found.get("llama.cpp")
    for way, figures in found.items():
        if peer and way != "llama.cpp":
            figures["ratio"], figures["ratio_error"] = ratio(totals[way].kl, totals["llama.cpp"].kl)
        if peer and way not in LLAMA:
            near = figures["ratio"] is not None and figures["ratio"] <= MOST_RATIO
            figures["kl_within"] = near
            figures["perplexity_within"] = abs(figures["perplexity_percent"]) <= abs(peer["perplexity_percent"]) + MOST_POINTS
    return found


def types_of(path, args):
    """{type: share of the weights in matrices}"""
    answer = subprocess.run([args.corbel, "inspect", "--json", path], capture_output=True, text=True, check=True)
    counts = {}
    for tensor in json.loads(answer.stdout)["tensors"]:
        if len(tensor["shape"]) > 1:
            counts[tensor["type"]] = counts.get(tensor["type"], 0) + math.prod(tensor["shape"])
    return {kind: count / sum(counts.values()) for kind, count in sorted(counts.items(), key=lambda item: -item[1])}


# ---- the run


def measure(name, path, args, save):
    """Gives `save` what is known after each window."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    windows, bos = windows_of(path, args)
    about = {"types": types_of(path, args), "bos": bos}
    totals, errors, peers_here = {}, {}, {}
    for way, params in LLAMA.items():
        try:
            peers_here[way] = Llama(path, args, **params)
        except RuntimeError as error:
            errors[way] = str(error)
    for number, ids in enumerate(windows):
        key = hashlib.sha256(f"{digest} {REFERENCE} {ids}".encode()).hexdigest()[:24]
        reference_file, file = args.cache / f"{key}.ref", args.cache / f"{key}.other"
        reference = corbel_logits(path, ids, REFERENCE, reference_file, args)
        for way in [*LLAMA, *args.levels]:
            if way in errors:
                continue
            try:
                if way in LLAMA:
                    logits = peers_here[way].logits(ids)
                else:
                    file.unlink(missing_ok=True)
                    logits = corbel_logits(path, ids, LEVELS[way] + (["--amx", "emulate"] if way == "amx" and args.emulate else []), file, args)
            except RuntimeError as error:
                errors[way] = str(error)
                continue
            totals.setdefault(way, Totals()).add(reference, logits, ids)
        file.unlink(missing_ok=True)
        if not args.keep:
            reference_file.unlink()
        known = next(iter(totals.values()), None)
        if known is None:
            break
        ways = judge(totals)
        save({**about, "windows": number + 1, "positions": len(known.kl), "reference_perplexity": known.perplexity(0), "ways": ways, "errors": errors})
        for way, figures in ways.items():
            peers.say(f"{name}, {number + 1} of {len(windows)} windows, {way}: mean KL {figures['mean_kl']:.3g}, perplexity {figures['perplexity_percent']:+.3f} %")
    for llama in peers_here.values():
        llama.close()


def share(types):
    return ", ".join(f"{kind} {100 * part:.0f} %" for kind, part in types.items())


def markdown(result):
    lines = [
        "| file | computed by | mean KL | of llama.cpp's | 99 % of KL below | most | same likeliest | perplexity | within |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, model in result["models"].items():
        for way, figures in model["ways"].items():
            against = f"{figures['ratio']:.2f} ± {figures['ratio_error']:.2f}" if figures.get("ratio") is not None else ""
            verdict = ""
            if "kl_within" in figures:
                missed = [what for what, ok in (("KL", figures["kl_within"]), ("perplexity", figures["perplexity_within"])) if not ok]
                verdict = "**no: " + ", ".join(missed) + "**" if missed else "yes"
            label = way if way in LLAMA else f"Corbel, {way}"
            lines.append(
                f"| {name} | {label} | {figures['mean_kl']:.2e} | {against} | {figures['p99_kl']:.1e} | {figures['max_kl']:.1e} |"
                f" {100 * figures['same_top']:.2f} % | {figures['perplexity_percent']:+.3f} % | {verdict} |"
            )
        for way, why in model["errors"].items():
            lines.append(f"| {name} | {way} | n/a: {why} | | | | | | |")
    lines += ["", "| file | windows | perplexity of `ref` | weights of the matrices |", "| --- | ---: | ---: | --- |"]
    for name, model in result["models"].items():
        lines.append(f"| {name} | {model['windows']} | {model['reference_perplexity']:.3f} | {share(model['types'])} |")
    machine = result["machine"]
    lines += [
        "",
        f"{result['date']}, {machine['cpu']} ({', '.join(machine['flags'])}), {result['corbel']}, {result['peer']}; tiles of AMX"
        f" {'in software' if result['emulated'] else 'of the CPU'}; text: {', '.join(result['text'])}; windows of {result['window']}"
        f" tokens.",
    ]
    return "\n".join(lines) + "\n"


PAGE = """# Accuracy

How far the levels of Corbel's backend `cpu`, and llama.cpp, are from Corbel's backend `ref` (sums in double, keys and values in float32) on the same
files and token ids. KL is the Kullback-Leibler divergence of the next token's distribution from that of `ref`, per position; "of llama.cpp's" is the
ratio of the means with its standard error. The limits, for every file and level: a mean KL of at most {kl} times llama.cpp's as it is by default,
and a perplexity no further from that of `ref` than llama.cpp's and {points} % more. What is behind the figures is in
[numerics](concepts/numerics.md#close-not-equal), the protocol in [the README of the peers](../tests/bench/peers/README.md#accuracy).

Chance has a part in these figures: llama.cpp's two rows differ in attention alone, and their difference shows how much other roundings of the same
size move the figures of so short a text. The error of a ratio does not know of what positions of one window share, so that it is rather too small.
Level amx is that of prompts; its generated tokens have the bits of avx512. This page is made by

{commands}
    tests/bench/peers/accuracy.py --doc docs/accuracy.md

{table}"""


def page(result):
    by_windows = {}
    for name, model in result["models"].items():
        by_windows.setdefault(model["windows"], []).append(name)
    commands = [f"    tests/bench/peers/accuracy.py --add --windows {windows} --models {' '.join(names)}" for windows, names in sorted(by_windows.items())]
    return PAGE.format(kl=result["limits"]["mean_kl_ratio"], points=result["limits"]["perplexity_points"], commands="\n".join(commands), table=markdown(result))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="of " + ", ".join(MODELS) + ", or of peers.py, or GGUF files (default: all of these)")
    parser.add_argument("--levels", nargs="+", choices=list(LEVELS), default=["avx2", "avx512", "amx"], help="default: avx2 avx512 amx")
    parser.add_argument("--text", nargs="+", type=pathlib.Path, help="default: wikitext-2-test.txt of CORBEL_TEST_DATA, or else docs/")
    parser.add_argument("--window", type=int, default=512, help="tokens that are looked at together")
    parser.add_argument("--windows", type=int, default=4, help="how many")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--corbel", type=pathlib.Path, default=peers.ROOT / "build" / "release" / "bin" / "corbel", help="the program corbel")
    parser.add_argument("--env", type=pathlib.Path, default=peers.ROOT / "build" / "peers", help="folder of the peers; may be thrown away")
    parser.add_argument("--model-folder", type=pathlib.Path, default=peers.ROOT / "build" / "models")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER", help="keep the logits of `ref` here for the next run (empty it when `ref` changes)")
    parser.add_argument("--add", action="store_true", help="keep the other files of OUT.json")
    parser.add_argument("--out", type=pathlib.Path, help="where OUT.json and OUT.md go (default: ENV/accuracy)")
    parser.add_argument("--doc", type=pathlib.Path, help="write this page from OUT.json, and measure nothing")
    args = parser.parse_args()
    args.env, args.model_folder = args.env.resolve(), args.model_folder.resolve()
    args.out = args.out or args.env / "accuracy"
    args.text = args.text or default_text()
    if args.doc:
        args.doc.write_text(page(json.loads(args.out.with_suffix(".json").read_text())))
        return
    if not args.corbel.is_file():
        sys.exit(f"{args.corbel} is missing: build the preset `release`")
    for name in args.models:
        if name not in MODELS and name not in peers.MODELS and not pathlib.Path(name).is_file():
            parser.error(f"no model {name}")
    if not peers.install("llama.cpp", args.env):
        sys.exit("without llama.cpp there is nothing to compare with")
    python = peers.python_of("llama.cpp", args.env)
    if pathlib.Path(sys.prefix).resolve() != (args.env / "llama.cpp").resolve():
        os.execv(python, [str(python), *sys.argv])  # which has llama.cpp and numpy

    machine = peers.machine()
    args.emulate = "amx_bf16" not in machine["flags"]
    result = {
        "command": shlex.join(["tests/bench/peers/accuracy.py", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "corbel": subprocess.run([args.corbel, "--version"], capture_output=True, text=True).stdout.strip(),
        "peer": (args.env / "llama.cpp" / "installed").read_text().strip(),
        "machine": machine,
        "emulated": args.emulate,
        "text": [path.name for path in args.text],
        "window": args.window,
        "limits": {"mean_kl_ratio": MOST_RATIO, "perplexity_points": MOST_POINTS},
        "models": {},
    }
    if args.add and args.out.with_suffix(".json").exists():
        result["models"] = json.loads(args.out.with_suffix(".json").read_text())["models"]

    with tempfile.TemporaryDirectory(prefix="corbel-accuracy-") as folder:
        args.cache = args.keep or pathlib.Path(folder)
        args.cache.mkdir(parents=True, exist_ok=True)
        for name in args.models:
            path = make_model(name, args) if name in MODELS or name in peers.MODELS else pathlib.Path(name).resolve()
            label = name if name in MODELS or name in peers.MODELS else path.stem

            def save(figures):
                result["models"][label] = figures
                args.out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
                args.out.with_suffix(".md").write_text(markdown(result))

            measure(name, path, args, save)
    print(markdown(result))


if __name__ == "__main__":
    main()
