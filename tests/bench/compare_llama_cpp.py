#!/usr/bin/env python3
"""Speed of Corbel's cpu backend beside llama.cpp (as llama-cpp-python) on this machine, in one interleaved run.

    tests/bench/compare_llama_cpp.py                          builds the peer into a throw-away environment first
    tests/bench/compare_llama_cpp.py --python VENV/bin/python     uses an environment that has llama-cpp-python

Each round runs Corbel and the peer one after the other, in turn first, each in a new process: a short untimed warm-up, then a prefill
of 512 made-up tokens, then 128 decode steps that take the likeliest token. `first` is the time from the begin of the load to the logits of
one token, and `memory` what is resident then (of the peer without what Python held before). Medians over the rounds, and Corbel / peer.
"""

import argparse
import ctypes
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

PEER = "llama-cpp-python==0.3.36"
ROOT = pathlib.Path(__file__).resolve().parents[2]


def made_up_ids(count, vocab):
    """The same ids as `corbel bench`."""
    state, ids = 42, []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        ids.append((state >> 33) % vocab)
    return ids


def peer_worker(model_path, prompt, gen, threads):
    """Runs in the peer's environment: one measurement as JSON on stdout."""
    import llama_cpp as lc
    import numpy as np

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    lc.llama_backend_init()
    quiet = lc.llama_log_callback(lambda level, text, user: None)
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    held_before = resident()
    begin = time.perf_counter()
    model = lc.llama_model_load_from_file(model_path.encode(), lc.llama_model_default_params())
    load_ms = (time.perf_counter() - begin) * 1e3
    params = lc.llama_context_default_params()
    params.n_ctx = prompt + gen
    params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = threads
    context = lc.llama_init_from_model(model, params)
    vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))

    def feed(ids):
        for i in range(0, len(ids), 512):
            piece = ids[i : i + 512]
            tokens = (lc.llama_token * len(piece))(*piece)
            if lc.llama_decode(context, lc.llama_batch_get_one(tokens, len(piece))) != 0:
                raise RuntimeError("llama_decode failed")
        row = lc.llama_get_logits_ith(context, -1)
        return int(np.ctypeslib.as_array(row, shape=(vocab,)).argmax())

    ids = made_up_ids(prompt, vocab)
    feed(ids[:1])
    first_ms = (time.perf_counter() - begin) * 1e3
    memory_mb = (resident() - held_before) / 1e6
    lc.llama_memory_clear(lc.llama_get_memory(context), True)
    feed([feed(ids)])
    lc.llama_memory_clear(lc.llama_get_memory(context), True)
    begin = time.perf_counter()
    token = feed(ids)
    prefill = prompt / (time.perf_counter() - begin)
    begin = time.perf_counter()
    for _ in range(gen):
        token = feed([token])
    decode = gen / (time.perf_counter() - begin)
    print(json.dumps({"prefill": prefill, "decode": decode, "load": load_ms, "first": first_ms, "memory": memory_mb}))


def run(command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stderr}")
    return json.loads(result.stdout.strip().splitlines()[-1])


def run_corbel(args, model):
    command = [args.corbel, "bench", model, "--prompt", args.prompt, "--gen", args.gen, "--threads", args.threads, "--repeat", 1, "--json"]
    command += ["--isa", args.isa] if args.isa else []
    figures = run(list(map(str, command)))
    return {
        "prefill": figures["prefill_tokens_per_s"]["median"],
        "decode": figures["decode_tokens_per_s"]["median"],
        "load": figures["load_ms"],
        "first": figures["first_token_ms"],
        "memory": figures["first_token_resident_bytes"] / 1e6,
        "isa": figures["isa"],
    }


def run_peer(args, model):
    worker = [args.python, __file__, "--peer-worker", "--models", model, "--prompt", args.prompt, "--gen", args.gen, "--threads", args.threads]
    return run(list(map(str, worker)))


def build_peer(folder):
    """A virtual environment with the peer, built with clang: gcc 12's build of it dies on machines with AMX."""
    python = folder / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    environment = dict(os.environ, CC="clang", CXX="clang++", CMAKE_ARGS="-DGGML_NATIVE=ON")
    subprocess.run([python, "-m", "pip", "install", "--quiet", PEER], check=True, env=environment)
    return python


def machine():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    field = lambda name: next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), "unknown")
    flags = field("flags").split()
    wanted = ["avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16"]
    return {
        "cpu": field("model name"),
        "cpus": os.cpu_count(),
        "flags": [flag for flag in wanted if flag in flags],
        "load": os.getloadavg(),
        "system": platform.release(),
    }


def show_machine(when):
    state = machine()
    load = ", ".join(f"{value:.2f}" for value in state["load"])
    print(f"{when}: {state['cpu']}, {state['cpus']} CPUs, {' '.join(state['flags'])}, Linux {state['system']}, load {load}")


def compare(args):
    show_machine("before")
    for model in args.models:
        ours, theirs = [], []
        for round_number in range(args.rounds):
            turns = [(run_corbel, ours), (run_peer, theirs)]
            for measure, figures in turns if round_number % 2 == 0 else reversed(turns):
                figures.append(measure(args, model))
        print(f"\n{pathlib.Path(model).name}, {args.threads} threads, {args.rounds} rounds, corbel at {ours[0]['isa']}, median (min to max)")
        for name, unit in (("prefill", "tokens/s"), ("decode", "tokens/s"), ("load", "ms"), ("first", "ms"), ("memory", "MB")):
            columns = []
            for figures in (ours, theirs):
                values = [figure[name] for figure in figures]
                columns.append(f"{statistics.median(values):9.1f} ({min(values):.1f} to {max(values):.1f})")
            ratio = statistics.median(f[name] for f in ours) / statistics.median(f[name] for f in theirs)
            print(f"  {name:8} corbel {columns[0]:32} llama.cpp {columns[1]:32} {unit:9} corbel/llama.cpp {ratio:.2f}")
    print()
    show_machine("after")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models = ROOT / "build" / "models"
    parser.add_argument("--corbel", default=ROOT / "build" / "release" / "bin" / "corbel", help="the program corbel")
    parser.add_argument("--python", help="a Python that has llama-cpp-python; without it one is built")
    parser.add_argument(
        "--models",
        nargs="+",
        default=[str(models / "SmolLM2-135M-Instruct.Q4_1.gguf"), str(models / "gemma-3-270m-q4_k_m.gguf")],
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--gen", type=int, default=128)
    parser.add_argument("--isa", help="as corbel bench --isa")
    parser.add_argument("--peer-worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer_worker:
        peer_worker(args.models[0], args.prompt, args.gen, args.threads)
        return
    for path in [args.corbel, *args.models]:
        if not pathlib.Path(path).is_file():
            sys.exit(f"{path} is missing: build the program with the preset `release`, fetch models with examples/get_model.sh")
    if args.python:
        compare(args)
        return
    with tempfile.TemporaryDirectory() as folder:
        print(f"building {PEER} with clang; this takes some minutes")
        args.python = build_peer(pathlib.Path(folder))
        compare(args)


if __name__ == "__main__":
    main()
