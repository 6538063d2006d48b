#!/usr/bin/env python3
"""One sample of a peer, in the peer's own environment: worker.py ENGINE MODEL, with the flags of `corbel bench`, prints its JSON.

The protocol is that of `corbel bench`: one token first, then a short untimed warm-up, then per sequence `depth` tokens untimed and `prompt`
tokens timed as prefill, then all sequences decode `gen` tokens together, greedily. Memory is without what Python held before the load.
"""

import argparse
import ctypes
import json
import os
import time

WARM_UP_PROMPT, WARM_UP_STEPS = 512, 2


def made_up_ids(count, vocab):
    """The same ids as `corbel bench`."""
    state, ids = 42, []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        ids.append((state >> 33) % vocab)
    return ids


def memory(name):
    """VmRSS or VmHWM of this process, bytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name + ":"))


def forget_peak():
    """Lets VmHWM start again from what is resident now."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass


class Llama:
    """llama.cpp and ik_llama.cpp through their C functions; `params` replaces defaults of the context."""

    def __init__(self, engine, path, args, **params):
        import numpy

        self.as_array = numpy.ctypeslib.as_array
        if engine == "ik":
            import ik_llama_cpp._ctypes_api as api
        else:
            import llama_cpp as api

            self.silent = api.llama_log_callback(lambda level, text, user: None)
            api.llama_log_set(self.silent, ctypes.c_void_p(0))
        self.api, self.path, self.args, self.ik = api, path, args, engine == "ik"
        self.params = params
        api.llama_backend_init()

    def load(self):
        api, args = self.api, self.args
        positions = max(args.depth + args.prompt + args.gen, WARM_UP_STEPS + min(args.depth + args.prompt, WARM_UP_PROMPT))
        positions = (positions + 255) // 256 * 256
        self.model = api.llama_model_load_from_file(self.path.encode(), api.llama_model_default_params())
        if not self.model:
            raise RuntimeError("the model does not load")
        self.vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        params = api.llama_context_default_params()
        params.n_ctx = positions * args.batch
        params.n_batch = max(args.depth, args.prompt, WARM_UP_PROMPT)
        params.n_ubatch = 512
        params.n_seq_max = args.batch
        params.n_threads = params.n_threads_batch = args.threads
        if self.ik:
            params.flash_attn = True
        else:
            params.swa_full = False
        for name, value in self.params.items():
            setattr(params, name, value)
        self.context = api.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("no context for this model")
        self.room = api.llama_batch_init(params.n_batch, 0, 1)
        self.clear()

    def clear(self):
        self.lengths = [0] * self.args.batch
        if self.ik:
            self.api.llama_kv_cache_clear(self.context)
        else:
            self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)

    def step(self, parts):
        """Runs [(sequence, ids)]; the likeliest next id of each."""
        batch, ends, n = self.room, [], 0
        for sequence, ids in parts:
            for id in ids:
                batch.token[n], batch.pos[n], batch.n_seq_id[n], batch.logits[n] = id, self.lengths[sequence], 1, 0
                batch.seq_id[n][0] = sequence
                self.lengths[sequence] += 1
                n += 1
            batch.logits[n - 1] = 1
            ends.append(n - 1)
        batch.n_tokens = n
        status = self.api.llama_decode(self.context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode answered {status}")
        rows = (ctypes.cast(self.api.llama_get_logits_ith(self.context, i), ctypes.POINTER(ctypes.c_float)) for i in ends)
        return [int(self.as_array(row, shape=(self.vocab,)).argmax()) for row in rows]

    def prefill(self, sequence, ids):
        return self.step([(sequence, ids)])[0] if ids else 0

    def decode(self, tokens, count):
        begin = time.perf_counter()
        for _ in range(count):
            tokens = self.step([(i, [token]) for i, token in enumerate(tokens)])
        return time.perf_counter() - begin

    def measure(self, depth, prompt, gen):
        """Seconds of the prefill of all sequences, and of the decode."""
        self.clear()
        tokens, seconds = [], 0.0
        for sequence in range(self.args.batch):
            self.prefill(sequence, depth)
            begin = time.perf_counter()
            tokens.append(self.prefill(sequence, prompt))
            seconds += time.perf_counter() - begin
        return seconds, self.decode(tokens, gen)


class OpenVino:
    """OpenVINO GenAI, which reads the GGUF file itself; times are those of its own record of a call."""

    def __init__(self, engine, path, args):
        import numpy
        import openvino
        import openvino_genai

        self.genai, self.ov, self.numpy, self.path, self.args = openvino_genai, openvino, numpy, path, args

    def load(self):
        scheduler = self.genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        scheduler.dynamic_split_fuse = False
        scheduler.max_num_batched_tokens = 2**31 - 1
        scheduler.max_num_seqs = max(self.args.batch, 1)
        self.pipe = self.genai.LLMPipeline(self.path, "CPU", scheduler_config=scheduler, INFERENCE_NUM_THREADS=self.args.threads)
        self.vocab = len(self.pipe.get_tokenizer().get_vocab())

    def call(self, ids, count, batch):
        """Seconds to the first token, and from there to the last."""
        rows = self.numpy.array([ids] * batch, dtype=self.numpy.int64)
        inputs = self.genai.TokenizedInputs(self.ov.Tensor(rows), self.ov.Tensor(self.numpy.ones_like(rows)))
        result = self.pipe.generate(inputs, max_new_tokens=count, min_new_tokens=count, ignore_eos=True, do_sample=False)
        if any(len(row) != count for row in result.tokens):
            raise RuntimeError("not as many tokens as asked for")
        record = result.perf_metrics.raw_metrics
        times = list(record.m_new_token_times)  # ms
        return list(record.m_times_to_first_token)[0] * 1e-6, (times[-1] - times[0]) * 1e-3

    def prefill(self, sequence, ids):
        self.call(ids, 1, 1)

    def measure(self, depth, prompt, gen):
        return self.call(depth + prompt or [0], 1 + gen, self.args.batch)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=["llama.cpp", "ik", "openvino"])
    parser.add_argument("model")
    for name, value in (("prompt", 512), ("gen", 128), ("depth", 0), ("batch", 1), ("threads", 2), ("repeat", 1)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    engine = (OpenVino if args.engine == "openvino" else Llama)(args.engine, args.model, args)
    held_before = memory("VmRSS")
    forget_peak()
    begin = time.perf_counter()
    engine.load()
    load = time.perf_counter() - begin
    ids = made_up_ids(max(args.depth + args.prompt, 1), engine.vocab)
    engine.prefill(0, ids[:1])
    first = time.perf_counter() - begin
    resident, peak = memory("VmRSS") - held_before, memory("VmHWM") - held_before

    depth, prompt = ids[: args.depth], ids[args.depth : args.depth + args.prompt]
    engine.measure([], (depth + prompt)[:WARM_UP_PROMPT], WARM_UP_STEPS if args.gen else 0)
    prefill, decode = engine.measure(depth, prompt, args.gen)
    one = lambda value: {"median": value, "min": value, "max": value}
    print(
        json.dumps(
            {
                "prefill_tokens_per_s": one(args.prompt * args.batch / prefill) if args.prompt and not args.depth else None,
                "decode_tokens_per_s": one(args.gen * args.batch / decode) if args.gen else None,
                "ttft_ms": one(prefill * 1e3 / args.batch) if args.prompt and not args.depth else None,
                "load_ms": load * 1e3,
                "first_token_ms": first * 1e3,
                "first_token_resident_bytes": resident,
                "first_token_peak_bytes": peak,
                "threads": args.threads,
            }
        ),
        flush=True,
    )
    os._exit(0)  # a peer that fails while it ends has answered already


if __name__ == "__main__":
    main()
