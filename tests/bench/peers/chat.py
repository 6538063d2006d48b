#!/usr/bin/env python3
"""What someone at a terminal sees of `corbel chat`, beside the same conversation through the peers' own Python packages.

    tests/bench/peers/chat.py [--model MODEL.gguf] [--rounds 3] [--packed-cache FOLDER]

Each sample is a new process that gets a message of about 512 tokens and replies greedily, its text going to a pipe as it comes. Measured from outside:
seconds from the start of the process to the first byte of the reply (with the load of the model, and for the peers with that of Python and their
package), from the first byte to the last, and how many tokens of the model the reply has. What the packages need is installed by peers.py.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import peers
import report

TEXT = (peers.ROOT / "docs" / "design.md").read_text()
LLAMA = """
import sys
from llama_cpp import Llama
model = Llama(sys.argv[1], n_ctx=2048, n_threads=int(sys.argv[2]), n_threads_batch=int(sys.argv[2]), verbose=False)
messages = [{"role": "user", "content": sys.argv[3]}]
for part in model.create_chat_completion(messages, stream=True, temperature=0, max_tokens=int(sys.argv[4])):
    sys.stdout.write(part["choices"][0]["delta"].get("content") or "")
    sys.stdout.flush()
"""
OPENVINO = """
import sys
import openvino_genai
pipe = openvino_genai.LLMPipeline(sys.argv[1], "CPU", INFERENCE_NUM_THREADS=int(sys.argv[2]))
pipe.start_chat()
def show(text):
    sys.stdout.write(text)
    sys.stdout.flush()
pipe.generate(sys.argv[3], max_new_tokens=int(sys.argv[4]), do_sample=False, streamer=show)
"""
PROGRAMS = {"llama.cpp": LLAMA, "openvino": OPENVINO}  # the package of ik_llama.cpp has no chat


def count_tokens(text, args):
    """How many tokens of the model a text has."""
    done = subprocess.run([args.corbel, "tokenize", args.model], input=text.encode(), capture_output=True, check=True)
    return len(json.loads(done.stdout))


def message(args):
    """The beginning of a text that has about as many tokens as asked for."""
    words, low, high = TEXT.split(" "), 1, len(TEXT.split(" "))
    while low < high:
        middle = (low + high) // 2
        if count_tokens(" ".join(words[:middle]), args) < args.prompt:
            low = middle + 1
        else:
            high = middle
    return " ".join(words[:low])


def command(engine, text, args):
    if engine == "corbel":
        cache = ["--packed-cache", args.packed_cache] if args.packed_cache else []
        flags = ["--prompt", text, "--temp", 0, "--threads", args.threads, "--max-tokens", args.gen]
        return [args.corbel, "chat", args.model, *flags, *cache]
    return [peers.python_of(engine, args.env), "-c", PROGRAMS[engine], args.model, args.threads, text, args.gen]


def sample(engine, text, args):
    """(seconds to the first byte, tokens/s after it), or None where the process fails."""
    begin, first, reply = time.monotonic(), None, b""
    process = subprocess.Popen(list(map(str, command(engine, text, args))), stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    while part := process.stdout.read(4096):
        last = time.monotonic()
        first = first or last
        reply += part
    problem = process.stderr.read().decode(errors="replace")
    if process.wait() != 0 or first is None or first == last:
        print(f"{engine}: {peers.last_line(problem)}", file=sys.stderr)
        return None
    return first - begin, (count_tokens(reply.decode(errors="replace"), args) - 1) / (last - first)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, default=peers.ROOT / "build" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--peers", nargs="*", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the message")
    parser.add_argument("--gen", type=int, default=128, help="tokens of the reply at most")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--packed-cache", type=pathlib.Path, help="as corbel chat --packed-cache")
    parser.add_argument("--corbel", type=pathlib.Path, default=peers.ROOT / "build" / "release" / "bin" / "corbel")
    parser.add_argument("--env", type=pathlib.Path, default=peers.ROOT / "build" / "peers")
    args = parser.parse_args()
    text = message(args)
    engines = ["corbel", *(peer for peer in args.peers if peers.install(peer, args.env))]
    found = {engine: [] for engine in engines}
    for number in range(args.rounds + 1):  # the first round warms the page cache up
        for engine in engines if number % 2 == 0 else reversed(engines):
            figures = sample(engine, text, args)
            if number > 0 and figures:
                found[engine].append(figures)
    print(f"{args.model.name}, a message of {count_tokens(text, args)} tokens, {args.threads} threads, median of {args.rounds} (least to most)\n")
    print("|  | start to first text, ms | tokens/s after it |\n| --- | ---: | ---: |")
    for engine, figures in found.items():
        if not figures:
            print(f"| {report.NAMES[engine]} | n/a | n/a |")
            continue
        cells = []
        for values in ([1e3 * seconds for seconds, _ in figures], [rate for _, rate in figures]):
            cells.append(f"{report.number(statistics.median(values))} ({report.number(min(values))} to {report.number(max(values))})")
        print(f"| {report.NAMES[engine]} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    main()
