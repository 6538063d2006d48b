#!/usr/bin/env python3
"""Speed and memory of Corbel beside llama.cpp, ik_llama.cpp and OpenVINO GenAI, on the same files, in one interleaved run.

    tests/bench/peers/peers.py --quick        SmolLM2 alone, some minutes once the peers are installed
    tests/bench/peers/peers.py                the whole set: hours
    tests/bench/peers/peers.py --prepare      installs the peers and makes the models, measures nothing

README.md beside this file says what is measured, and how.
"""

import argparse
import contextlib
import datetime
import json
import math
import os
import pathlib
import platform
import shlex
import signal
import subprocess
import sys
import time

import report

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]

# The package, and how it is compiled here, if it is. (Attention over quantized caches, which nothing here has, takes ik_llama.cpp's compiler an hour.)
PEERS = {
    "llama.cpp": ("llama-cpp-python==0.3.36", "-DGGML_NATIVE=ON"),
    "ik": ("ik-llama-cpp-python==0.1.5", "-DGGML_NATIVE=ON -DGGML_IQK_FA_ALL_QUANTS=OFF"),
    "openvino": ("openvino-genai==2026.4.1.0", None),
}
# In this order: gcc 12's build of ggml dies on machines with AMX, and clang 14 cannot compile ik_llama.cpp for AVX-512. Last, the wheel as it is.
COMPILERS = [("clang", "clang++"), ("gcc", "g++"), None]

# Name: file, and how it is made: (what, from or type).
MODELS = {
    "smollm2-q4_1": ("SmolLM2-135M-Instruct.Q4_1.gguf", "fetch", "smollm2"),
    "smollm2-q4_0": ("SmolLM2-135M-Instruct.Q4_0.gguf", "convert", "Q4_0"),
    "smollm2-q8_0": ("SmolLM2-135M-Instruct.Q8_0.gguf", "convert", "Q8_0"),
    "gemma3-q4_k_m": ("gemma-3-270m-q4_k_m.gguf", "fetch", "gemma3"),
    "1b-q4_0": ("random-1.1B.Q4_0.gguf", "random", "Q4_0"),
    "1b-q4_k_m": ("random-1.1B.Q4_K_M.gguf", "random", "Q4_K_M"),
    "1b-q8_0": ("random-1.1B.Q8_0.gguf", "random", "Q8_0"),
    "1b-bf16": ("random-1.1B.BF16.gguf", "random", "BF16"),
}

# One new process each, by the flags of `corbel bench`. `alone` has one thread, `busy` all of them and a neighbour.
JOBS = {
    "prompt512": {"prompt": 512, "gen": 0},
    "prompt2048": {"prompt": 2048, "gen": 0},
    "decode": {"prompt": 0, "gen": 128},
    "decode4096": {"prompt": 0, "gen": 128, "depth": 4096},
    "batch4": {"prompt": 128, "gen": 32, "batch": 4},
    "batch8": {"prompt": 128, "gen": 32, "batch": 8},
    "batch32": {"prompt": 128, "gen": 32, "batch": 32},
    "packed": {"prompt": 0, "gen": 1},
    "alone": {"prompt": 256, "gen": 64, "threads": 1},
    "busy": {"prompt": 256, "gen": 64},
}
QUICK = {"models": ["smollm2-q4_1"], "rounds": 2, "without": ["prefill2048", "decode4096", "batch4"]}


def say(text):
    print(text, file=sys.stderr, flush=True)


def checked(command, **how):
    say("+ " + shlex.join(map(str, command)))
    subprocess.run(list(map(str, command)), check=True, stdout=sys.stderr, **how)


# ---- what is needed first


def python_of(peer, env):
    return env / peer / "bin" / "python"


def install(peer, env):
    """The peer in an environment of its own; one that is there is taken as it is. False where it cannot be had."""
    package, flags = PEERS[peer]
    mark = env / peer / "installed"
    if mark.exists():
        return True
    checked([sys.executable, "-m", "venv", env / peer])
    for compilers in COMPILERS if flags else [None]:
        how, source = dict(os.environ), []
        if compilers:
            how.update(CC=compilers[0], CXX=compilers[1], CMAKE_ARGS=flags)
            source = ["--no-binary", package.split("==")[0]]
            say(f"building {package} with {compilers[0]}; this takes minutes")
        try:
            checked([python_of(peer, env), "-m", "pip", "install", "--quiet", *source, package], env=how)
        except subprocess.CalledProcessError as error:
            say(f"{peer} cannot be installed: {error}")
            continue
        mark.write_text(package + (f", {compilers[0]} for this processor" if compilers else ", wheel") + "\n")
        return True
    return False


def compile_tool(name, env, *flags):
    """A program of this folder, compiled where it is not there yet or older than its source."""
    source, program = HERE / f"{name}.cpp", env / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        env.mkdir(parents=True, exist_ok=True)
        compiler = os.environ.get("CXX", "c++")
        checked([compiler, "-O2", "-std=c++20", "-pthread", *flags, source, "-o", program])
    return program


def make_model(name, args):
    file, how, detail = MODELS[name]
    path = args.model_folder / file
    if path.exists():
        return path
    args.model_folder.mkdir(parents=True, exist_ok=True)
    if how == "fetch":
        checked([ROOT / "examples" / "get_model.sh", detail, args.model_folder])
        return path
    source = make_model("smollm2-q4_1", args)
    part = path.with_name("part-" + file)
    if how == "convert":
        checked([args.corbel, "convert", source, part, "--type", detail])
    else:
        program = compile_tool("random_llama", args.env, f"-I{ROOT / 'include'}", "-DFMT_HEADER_ONLY")
        checked([program, source, part, detail])
    part.rename(path)
    return path


# ---- one sample


def busy_seconds():
    """CPU time that all processes of this machine have used, and what its host has withheld."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _, _, irq, soft, steal = map(int, fields)
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def wait_for_calm(seconds):
    """Returns when other processes leave the machine alone, or after so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        busy = busy_seconds()
        time.sleep(0.5)
        if busy_seconds() - busy <= 0.05:
            return


@contextlib.contextmanager
def neighbour(wanted):
    """A process that keeps one CPU busy."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
        time.sleep(0.2)
        yield
    finally:
        process.kill()
        process.wait()


def sample(engine, model, job, args):
    """What one process measured, or {"error": why}; with the CPUs that others kept busy meanwhile."""
    flags = {"threads": args.threads, "depth": 0, "batch": 1, "repeat": 1, **JOBS[job]}
    if engine == "corbel":
        command = [args.corbel, "bench", model] + (["--isa", args.isa] if args.isa else [])
        if job == "packed":
            command += ["--packed-cache", packed_folder(args)]
    else:
        command = [python_of(engine, args.env), HERE / "worker.py", engine, model]
    command += [part for name, value in flags.items() for part in ("--" + name, value)] + ["--json"]
    wait_for_calm(args.wait)
    with neighbour(job == "busy"):
        begin, busy, used = time.monotonic(), busy_seconds(), os.times()
        try:
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=args.timeout)
            problem = None if done.returncode == 0 else last_line(done.stderr) or f"exit code {done.returncode}"
            if done.returncode < 0:
                problem = f"ended by signal {-done.returncode}: {last_line(done.stderr)}"
        except subprocess.TimeoutExpired:
            problem = f"no answer within {args.timeout} s"
        wall, now = time.monotonic() - begin, os.times()
        own = now.children_user + now.children_system - used.children_user - used.children_system
        others = max(0.0, (busy_seconds() - busy - own) / wall - (1 if job == "busy" else 0))
    figures = {"others": round(others, 2), "seconds": round(wall, 1)}
    if problem:
        return {**figures, "error": problem.replace(f"{ROOT}/", "")[:160]}
    try:
        return {**figures, **json.loads(last_line(done.stdout))}
    except ValueError:
        return {**figures, "error": "no JSON: " + last_line(done.stdout)[:100]}


def packed_folder(args):
    return args.env / "packed"


def pack(model, args):
    """Corbel's packed file of a model; a second load finds out that the checkpoint rests."""
    packed_folder(args).mkdir(parents=True, exist_ok=True)
    for _ in range(2):
        checked([args.corbel, "bench", model, "--prompt", 0, "--gen", 1, "--repeat", 1, "--packed-cache", packed_folder(args)])


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


# ---- the run


def machine():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    field = lambda name: next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), "unknown")
    flags = field("flags").split()
    wanted = ["avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_int8", "amx_bf16"]
    memory = pathlib.Path("/proc/meminfo").read_text().split()[1]
    return {
        "cpu": field("model name"),
        "family": f"family {field('cpu family')} model {field('model')} stepping {field('stepping')}",
        "cpus": len(os.sched_getaffinity(0)),
        "flags": [flag for flag in wanted if flag in flags],
        "memory_gib": round(int(memory) / 2**20, 1),
        "kernel": platform.release(),
        "load": os.getloadavg(),
    }


def describe(path, args):
    """What the limits need to know about a model."""
    answer = subprocess.run([args.corbel, "inspect", "--json", path], capture_output=True, text=True, check=True)
    known = json.loads(answer.stdout)
    keys, family = known["metadata"], known["metadata"]["general.architecture"]
    key = lambda name, fallback=0: keys.get(f"{family}.{name}", fallback)
    count = lambda tensor: math.prod(tensor["shape"])
    tensors = {tensor["name"]: tensor for tensor in known["tensors"]}
    head = tensors.get("output.weight", tensors["token_embd.weight"])
    matrices = [t for name, t in tensors.items() if len(t["shape"]) > 1 and name not in ("output.weight", "token_embd.weight")]
    heads = key("attention.head_count", 1)
    head_dim = key("attention.key_length", key("embedding_length") // heads)
    return {
        "file_bytes": known["file_bytes"],
        "step_bytes": sum(t["bytes"] for t in matrices) + head["bytes"],
        "layer_weights": sum(count(t) for t in matrices),
        "head_weights": count(head),
        "float": all(t["type"] in ("F32", "F16", "BF16") for t in matrices),
        "kv_bytes_per_position": 0 if key("attention.sliding_window") else 4 * key("block_count") * key("attention.head_count_kv", heads) * head_dim,
    }


def probe(program, sizes, *files):
    return json.loads(subprocess.run([program, *map(str, sizes), *map(str, files)], capture_output=True, text=True, check=True).stdout)


def save(result, out):
    out.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    out.with_suffix(".md").write_text(report.markdown(result))
    out.with_suffix(".svg").write_text(report.plot(result))


def measure(args):
    models = {name if name in MODELS else pathlib.Path(name).stem: path for name, path in args.paths.items()}
    engines = ["corbel", *args.peers]
    jobs = [job for job in JOBS if any(report.ROWS[row].job == job for row in args.rows)]
    result = {
        "command": shlex.join(["tests/bench/peers/peers.py", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "corbel": subprocess.run([args.corbel, "--version"], capture_output=True, text=True).stdout.strip(),
        "peers": {peer: (args.env / peer / "installed").read_text().strip() or PEERS[peer][0] for peer in args.peers},
        "threads": args.threads,
        "rows": args.rows,
        "before": machine(),
        "models": {name: describe(path, args) for name, path in models.items()},
        "limits": [],
        "samples": [],
    }
    program = compile_tool("limits", args.env)
    sizes = sorted({1 << 20, 64 << 20, 600_000_000} | {m["step_bytes"] for m in result["models"].values() if m["step_bytes"] < 600_000_000})
    failed = set()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for name, path in models.items():
            if "packed" in jobs:
                pack(path, args)
            for round_number in range(args.rounds):
                result["limits"].append({"model": name, **probe(program, sizes, path)})
                for job in jobs:
                    for engine in engines if round_number % 2 == 0 else reversed(engines):
                        if (name, engine, job) in failed:
                            continue
                        figures = sample(engine, path, job, args)
                        outcome = figures.get("error") or f"{figures['seconds']} s"
                        say(f"{name}, round {round_number + 1}, {job}, {engine}: {outcome}")
                        if "error" in figures:
                            failed.add((name, engine, job))
                        result["samples"].append({"model": name, "engine": engine, "job": job, "round": round_number, **figures})
                result["after"] = machine()
                save(result, args.out)
        result["limits"].append(probe(program, sizes))
    except KeyboardInterrupt:
        say("stopped; this is what there is")
    result["after"] = machine()
    save(result, args.out)
    print(report.markdown(result))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="SmolLM2 Q4_1 alone, 2 rounds, without the longest rows")
    parser.add_argument("--prepare", action="store_true", help="measure nothing")
    parser.add_argument("--models", nargs="+", help="of " + ", ".join(MODELS) + ", or GGUF files (default: all of the set)")
    parser.add_argument("--rows", nargs="+", choices=list(report.ROWS), metavar="ROW", help="of " + ", ".join(report.ROWS) + " (default: all)")
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS), metavar="PEER", help="of " + ", ".join(PEERS))
    parser.add_argument("--rounds", type=int, help="default 3")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--isa", help="as corbel bench --isa")
    parser.add_argument("--corbel", type=pathlib.Path, default=ROOT / "build" / "release" / "bin" / "corbel", help="the program corbel")
    parser.add_argument("--env", type=pathlib.Path, default=ROOT / "build" / "peers", help="folder of the peers; may be thrown away")
    parser.add_argument("--model-folder", type=pathlib.Path, default=ROOT / "build" / "models", help="4.9 GB for the whole set")
    parser.add_argument("--out", type=pathlib.Path, help="where OUT.json, OUT.md and OUT.svg go (default: ENV/result)")
    parser.add_argument("--timeout", type=int, default=900, help="seconds for one sample")
    parser.add_argument("--wait", type=int, default=20, help="seconds to wait at most, before each sample, for other processes to be idle")
    args = parser.parse_args()
    args.env, args.model_folder = args.env.resolve(), args.model_folder.resolve()
    args.out = args.out or args.env / "result"
    args.rounds = args.rounds or (QUICK["rounds"] if args.quick else 3)
    args.rows = args.rows or [row for row in report.ROWS if not (args.quick and row in QUICK["without"])]
    if not args.corbel.is_file():
        sys.exit(f"{args.corbel} is missing: build the preset `release`")
    names = args.models or (QUICK["models"] if args.quick else list(MODELS))
    for name in names:
        if name not in MODELS and not pathlib.Path(name).is_file():
            parser.error(f"no model {name}")
    args.peers = [peer for peer in args.peers if install(peer, args.env)]
    args.paths = {name: make_model(name, args) if name in MODELS else pathlib.Path(name).resolve() for name in names}
    if not args.prepare:
        measure(args)


if __name__ == "__main__":
    main()
