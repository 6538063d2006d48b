#!/usr/bin/env python3
"""Tables and a plot of a result of peers.py: report.py RESULT.json > RESULT.md, or report.py RESULT.json --doc docs/performance.md

--doc writes the page of the documentation, and the plot beside it.
"""

import argparse
import collections
import json
import pathlib
import statistics

NAMES = {"corbel": "Corbel", "llama.cpp": "llama.cpp", "ik": "ik_llama.cpp", "openvino": "OpenVINO GenAI"}
COLORS = {"corbel": "#c2410c", "llama.cpp": "#64748b", "ik": "#94a3b8", "openvino": "#cbd5e1"}

# What a row shows: of which job, of what it printed, in which unit. `phase` says which limit holds.
Row = collections.namedtuple("Row", "label job figure scale unit more phase", defaults=[None])
RATE, MS, MB = (1, "tokens/s", True), (1, "ms", False), (1e-6, "MB", False)
ROWS = {
    "prefill512": Row("prefill, 512 tokens", "prompt512", "prefill_tokens_per_s", *RATE, "prefill"),
    "prefill2048": Row("prefill, 2048 tokens", "prompt2048", "prefill_tokens_per_s", *RATE, "prefill"),
    "decode": Row("decode 128", "decode", "decode_tokens_per_s", *RATE, "decode"),
    "decode4096": Row("decode 128 at depth 4096", "decode4096", "decode_tokens_per_s", *RATE, "decode"),
    "batch4": Row("batch 4, in total", "batch4", "decode_tokens_per_s", *RATE, "decode"),
    "batch8": Row("batch 8, in total", "batch8", "decode_tokens_per_s", *RATE, "decode"),
    "batch32": Row("batch 32, in total", "batch32", "decode_tokens_per_s", *RATE, "decode"),
    "ttft": Row("first token of a prompt of 512", "prompt512", "ttft_ms", *MS),
    "load": Row("load", "prompt512", "load_ms", *MS),
    "packed": Row("load, Corbel's from its packed file", "packed", "load_ms", *MS),
    "packed_first": Row("the same and first token", "packed", "first_token_ms", *MS),
    "first": Row("load and first token", "prompt512", "first_token_ms", *MS),
    "resident": Row("memory after the first token", "prompt512", "first_token_resident_bytes", *MB),
    "peak": Row("memory at most until then", "prompt512", "first_token_peak_bytes", *MB),
    "alone_prefill": Row("one thread, idle machine: prefill 256", "alone", "prefill_tokens_per_s", *RATE),
    "busy_prefill": Row("all threads, busy neighbour: prefill 256", "busy", "prefill_tokens_per_s", *RATE),
    "alone_decode": Row("one thread, idle machine: decode 64", "alone", "decode_tokens_per_s", *RATE),
    "busy_decode": Row("all threads, busy neighbour: decode 64", "busy", "decode_tokens_per_s", *RATE),
}
DEPTHS = {"decode": 64, "decode4096": 4096 + 64, "batch4": 144, "batch8": 144, "batch32": 144}  # on average
BATCHES = {"batch4": 4, "batch8": 8, "batch32": 32}
DISTURBED = 0.2  # CPUs that others kept busy during a sample
PANELS = ["prefill512", "decode", "decode4096", "batch32"]


def values(result, model, engine, row):
    """All samples of a row, and why there are none."""
    row, found, problem = ROWS[row], [], None
    for sample in result["samples"]:
        if (sample["model"], sample["engine"], sample["job"]) != (model, engine, row.job):
            continue
        problem = sample.get("error", problem)
        figure = sample.get(row.figure)
        if figure is not None:
            found.append((figure["median"] if isinstance(figure, dict) else figure) * row.scale)
    return found, problem


def medians(result, model, row):
    """{engine: median} of those that have one."""
    answer = {}
    for engine in ["corbel", *result["peers"]]:
        found, _ = values(result, model, engine, row)
        if found:
            answer[engine] = statistics.median(found)
    return answer


def ratio_to_best(result, model, row):
    """Corbel's median / that of the best peer, or None."""
    found = medians(result, model, row)
    ours = found.pop("corbel", None)
    best = (max if ROWS[row].more else min)(found.values(), default=None)
    return None if ours is None or best is None else ours / best


# ---- limits


def compute_limit(result, floats):
    """(GOP/s, unit) of the fastest unit that suits the weights, on as many threads as were probed and used."""
    suited = ["amx_bf16", "avx512_bf16", "avx512_fma", "avx2_fma"] if floats else ["amx_bf16", "avx512_vnni", "avx2_int8"]
    threads = str(min(result["threads"], 2))
    rates = {}
    for probe in result["limits"]:
        for unit, by_threads in probe["compute"].items():
            rates[unit] = max(rates.get(unit, 0), by_threads[threads])
    unit = max((unit for unit in suited if unit in rates), key=lambda unit: rates[unit])
    return rates[unit], unit


def read_limit(result, size):
    """GB/s of the best way to read about `size` bytes."""
    threads = min(result["threads"], 2)
    reads = [read for probe in result["limits"] for read in probe["read"] if read["threads"] == threads]
    nearest = min((read["bytes"] for read in reads), key=lambda have: abs(have - size))
    return max(read["gb_per_s"] for read in reads if read["bytes"] == nearest)


def copy_limit(result, model):
    """ms that two threads need to copy a model's file into memory of their own, or None."""
    return min((ms for probe in result["limits"] if probe.get("model") == model for ms in probe.get("copy", [])), default=None)


def limit(result, model, row):
    """Tokens/s that the machine allows in a row: products of the layers for prefill; for decode the bytes of weights and cache, or the products of
    a whole batch where those take longer. Attention's products, norms and sampling are left out. None where no limit is known."""
    known, phase = result["models"][model], ROWS[row].phase
    if phase is None or not result["limits"]:
        return None
    operations, _ = compute_limit(result, known["float"])
    if phase == "prefill":
        return 1e9 * operations / (2 * known["layer_weights"])
    batch = BATCHES.get(row, 1)
    moved = known["step_bytes"] + batch * known["kv_bytes_per_position"] * DEPTHS[row]
    seconds = moved / (1e9 * read_limit(result, known["step_bytes"]))
    products = 2 * batch * (known["layer_weights"] + known["head_weights"]) / (1e9 * operations)
    return batch / max(seconds, products)


# ---- text


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def cell(result, model, engine, row):
    found, problem = values(result, model, engine, row)
    if not found:
        return "n/a" if problem else "-"
    disturbed = any(
        sample["others"] > DISTURBED
        for sample in result["samples"]
        if (sample["model"], sample["engine"], sample["job"]) == (model, engine, ROWS[row].job)
    )
    spread = f" ({number(min(found))} to {number(max(found))})" if len(found) > 1 else ""
    return number(statistics.median(found)) + spread + (" \\*" if disturbed else "")


def ratio_text(ratio):
    return "" if ratio is None else f"{ratio:.2f}"


def model_table(result, model):
    engines = ["corbel", *result["peers"]]
    lines = [f"### {model} ({result['models'][model]['file_bytes'] / 1e6:,.0f} MB)", ""]
    lines.append("| " + " | ".join(["", *(NAMES[e] for e in engines), "Corbel / best peer", "Corbel's share of the limit"]) + " |")
    lines.append("| --- |" + " ---: |" * (len(engines) + 2))
    for row in result["rows"]:
        bound, ours = limit(result, model, row), medians(result, model, row).get("corbel")
        share = f"{ours / bound:.0%} of {number(bound)}" if bound and ours else ""
        copy = copy_limit(result, model) if row == "load" else None
        if copy and ours:
            share = f"{ours / copy:.1f} copies of {number(copy)}"
        label = f"{ROWS[row].label}, {ROWS[row].unit}"
        cells = [cell(result, model, engine, row) for engine in engines]
        lines.append("| " + " | ".join([label, *cells, ratio_text(ratio_to_best(result, model, row)), share]) + " |")
    for phase in ("prefill", "decode"):
        pair = [medians(result, model, f"{state}_{phase}") for state in ("alone", "busy")]
        if {f"alone_{phase}", f"busy_{phase}"} <= set(result["rows"]):
            cells = [f"{pair[1][e] / pair[0][e]:.2f}" if e in pair[0] and e in pair[1] else "-" for e in engines]
            lines.append("| " + " | ".join([f"{phase}: busy neighbour / one thread alone", *cells, "", ""]) + " |")
    problems = {}
    for sample in result["samples"]:
        if sample["model"] == model and "error" in sample:
            problems.setdefault((NAMES[sample["engine"]], sample["error"]), []).append(sample["job"])
    for (engine, problem), jobs in problems.items():
        lines += ["", f"n/a: {engine}, {', '.join(jobs)}: `{problem.replace('`', ' ')}`"]
    return lines


def short_falls(result):
    """Rows in which Corbel is behind the best peer."""
    lines = []
    for model in result["models"]:
        for row in result["rows"]:
            ratio = ratio_to_best(result, model, row)
            if ratio is not None and (ratio < 1 if ROWS[row].more else ratio > 1):
                lines.append(f"- {model}, {ROWS[row].label}: {ratio:.2f}")
    return lines or ["- none"]


def machine_lines(result):
    lines = []
    for when in ("before", "after"):
        state = result.get(when)
        if state:
            load = ", ".join(f"{value:.2f}" for value in state["load"])
            lines.append(
                f"- {when}: {state['cpu']} ({state['family']}), {state['cpus']} CPUs, {state['memory_gib']} GiB, {' '.join(state['flags'])}, "
                f"Linux {state['kernel']}, load {load}"
            )
    others = [sample["others"] for sample in result["samples"]]
    if others:
        lines.append(f"- other processes (and the host) kept {statistics.median(others):.2f} CPUs busy in the median sample, {max(others):.2f} in the worst")
    return lines


def limit_tables(result):
    lines = ["| unit, GOP/s (best, and range over the probes) | 1 thread | 2 threads |", "| --- | ---: | ---: |"]
    probes = result["limits"]
    for unit in probes[0]["compute"]:
        cells = []
        for threads in ("1", "2"):
            found = [probe["compute"][unit][threads] for probe in probes]
            cells.append(f"{max(found):,.0f} ({min(found):,.0f} to {max(found):,.0f})")
        lines.append(f"| {unit} | {cells[0]} | {cells[1]} |")
    shapes = [(gemv, threads, streams) for threads in (1, 2) for streams in (1, 4) for gemv in (False, True)]
    lines += ["", "| read, GB/s (best) | " + " | ".join(f"T={t}, {s} {'stream' if s == 1 else 'streams'}{', 4-bit product' if g else ''}" for g, t, s in shapes) + " |"]
    lines.append("| --- |" + " ---: |" * len(shapes))
    for size in sorted({read["bytes"] for read in probes[0]["read"]}):
        best = collections.defaultdict(float)
        for probe in probes:
            for read in probe["read"]:
                if read["bytes"] == size:
                    key = (read["gemv"], read["threads"], read["streams"])
                    best[key] = max(best[key], read["gb_per_s"])
        lines.append(f"| {size / 1e6:,.1f} MB | " + " | ".join(number(best[shape]) for shape in shapes) + " |")
    return lines


def markdown(result):
    rounds = 1 + max((sample["round"] for sample in result["samples"]), default=-1)
    lines = [f"`{result['command']}`, {result['date']}; {result['corbel']}; {', '.join(result['peers'].values())}.", ""]
    lines += machine_lines(result)
    lines += ["", f"{result['threads']} threads, {rounds} rounds, a new process for each figure, engines in turn; median (least to most)."]
    lines += [f"\\* marks figures during which others kept more than {DISTURBED} CPUs busy."]
    lines += ["", "Behind the best peer (rates below 1, times and memory above 1):", "", *short_falls(result), ""]
    for model in result["models"]:
        lines += [*model_table(result, model), ""]
    if result["limits"]:
        lines += ["### Limits of the machine, probed in the same run", "", *limit_tables(result), ""]
    return "\n".join(lines)


# ---- plot


def plot(result):
    """Bars for some rows of each model, as SVG."""
    panels = [row for row in PANELS if row in result["rows"]]
    engines = ["corbel", *result["peers"]]
    wide, bar, left, top = 250, 15, 120, 40
    tall = bar * len(engines) + 22
    width, height = left + wide * len(panels), top + tall * len(result["models"]) + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    text = lambda x, y, what, more="": parts.append(f'<text x="{x:.0f}" y="{y:.0f}" {more}>{what}</text>')
    for i, engine in enumerate(engines):
        parts.append(f'<rect x="{left + 130 * i}" y="6" width="10" height="10" fill="{COLORS[engine]}"/>')
        text(left + 130 * i + 15, 15, NAMES[engine])
    for column, row in enumerate(panels):
        text(left + wide * column, 33, f"{ROWS[row].label}, {ROWS[row].unit}", 'font-weight="bold"')
    for line, model in enumerate(result["models"]):
        y = top + tall * line
        text(8, y + tall / 2, model)
        for column, row in enumerate(panels):
            found = medians(result, model, row)
            for i, engine in enumerate(engines):
                x, at = left + wide * column, y + bar * i
                if engine not in found:
                    text(x, at + 11, "n/a", 'fill="#94a3b8"')
                    continue
                length = (wide - 70) * found[engine] / max(found.values())
                parts.append(f'<rect x="{x}" y="{at}" width="{length:.1f}" height="{bar - 2}" fill="{COLORS[engine]}"/>')
                text(x + length + 4, at + 11, number(found[engine]))
    return "\n".join([*parts, "</svg>", ""])


def document(result, plot_name):
    return f"""# Performance

Corbel's cpu backend beside its peers on the same files. This page is made by `tests/bench/peers/report.py --doc` from runs of
[tests/bench/peers](../tests/bench/peers/README.md), which also says what each row measures; it is not edited by hand.

![Tokens per second of Corbel and its peers]({plot_name})

## The run

{markdown(result).rstrip()}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=pathlib.Path)
    parser.add_argument("--doc", type=pathlib.Path)
    args = parser.parse_args()
    result = json.loads(args.result.read_text())
    if not args.doc:
        print(markdown(result))
        return
    picture = args.doc.with_suffix(".svg")
    args.doc.write_text(document(result, picture.name))
    picture.write_text(plot(result))


if __name__ == "__main__":
    main()
