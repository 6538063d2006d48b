#!/usr/bin/env python3
"""Make a tiny random checkpoint of a family together with the numbers that it must give, for tests/data/golden.

    python tests/tools/make_golden.py CONFIG.json tests/data/golden/NAME

CONFIG.json is that of a published checkpoint of the family, made small: about 2 layers, 32 wide, 96 tokens of vocabulary.
It is copied as it is; the weights are random. golden.safetensors holds input_ids int64 [T], the float32 logits [T, vocab]
of one full pass, and the greedy continuation int64 [N], computed without a cache. The seed is raised until the numbers
are good to test against: logits spread, no near tie, no rut. Needs torch, transformers 5 and safetensors; works offline.
"""
import argparse
import copy
import json
import math
import pathlib

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

T, N = 24, 16
EAGER = dict(attn_implementation="eager", experts_implementation="eager", dtype=torch.float32)


def build(cfg):
    cfg = copy.deepcopy(cfg)
    config = CONFIG_MAPPING[cfg.pop("model_type")].from_dict(cfg)
    return AutoModelForCausalLM.from_config(config, **EAGER).eval()


def draw(model, fresh, seed):
    """New weights: matrices so that values keep their size, vectors (norms: 1, or 0 where the family adds 1) moved."""
    g = torch.Generator().manual_seed(seed)
    for name, module in model.named_modules():
        fan_axis = -2 if type(module).__name__ == "Conv1D" else -1
        for key, p in module.named_parameters(recurse=False):
            r = torch.randn(p.shape, generator=g)
            p.data = fresh[f"{name}.{key}"] + 0.1 * r if p.dim() < 2 else 1.6 * r / math.sqrt(p.shape[fan_axis])
    model.tie_weights()


@torch.no_grad()
def logits_of(model, ids):
    return model(input_ids=ids[None], use_cache=False).logits[0].float().contiguous()


def greedy_of(model, ids):
    """N greedy tokens, and the smallest lead of one over the runner-up."""
    gap = math.inf
    for _ in range(N):
        top = logits_of(model, ids)[-1].topk(2)
        gap = min(gap, (top.values[0] - top.values[1]).item())
        ids = torch.cat([ids, top.indices[:1]])
    return ids[-N:].contiguous(), gap


def noise_of(model, ids):
    """Largest change of a logit when every weight moves by about 1e-6 of itself: more than float32 rounding does."""
    other, g = copy.deepcopy(model), torch.Generator().manual_seed(1)
    for p in other.parameters():
        p.data = p.data * (1 + 1e-6 * torch.randn(p.shape, generator=g))
    return (logits_of(other, ids) - logits_of(model, ids)).abs().max().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    text = args.config.read_text()
    cfg = json.loads(text)
    model = build(cfg)
    fresh = {name: p.data.clone() for name, p in model.named_parameters()}
    for seed in range(1000):
        draw(model, fresh, seed)
        ids = torch.randint(6, cfg["vocab_size"], (T,), generator=torch.Generator().manual_seed(seed))
        logits = logits_of(model, ids)
        greedy, gap = greedy_of(model, ids)
        noise = noise_of(model, torch.cat([ids, greedy]))
        if 1 < logits.std() < 6 and gap > 1e-2 and noise < 1e-3 and len(set(greedy.tolist())) >= 6:
            break
    else:
        raise SystemExit("no seed gives numbers that are good to test against")
    model.save_pretrained(args.out)
    (args.out / "generation_config.json").unlink(missing_ok=True)
    (args.out / "config.json").write_text(text)
    back = AutoModelForCausalLM.from_pretrained(args.out, **EAGER).eval()
    if (error := (logits_of(back, ids) - logits).abs().max().item()) > 1e-4:
        raise SystemExit(f"reading it back is off by {error:.2g}")
    save_file(dict(input_ids=ids, logits=logits, greedy=greedy), args.out / "golden.safetensors")
    meta = dict(model=type(model).__name__, transformers=transformers.__version__, torch=torch.__version__, seed=seed,
                logits_std=round(logits.std().item(), 3), min_top_gap=round(gap, 4), noise=float(f"{noise:.2g}"))
    (args.out / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")
    print(args.out, meta)


if __name__ == "__main__":
    main()
