#!/usr/bin/env python3
"""What compilers made of the kernels, read from the machine code of object files and libraries (objdump of binutils).

  machine_code.py levels FILE...           no instruction outside the level whose namespace the function is in
  machine_code.py loops COMPILER FILE...   no vectors on the stack in the hot loops; COMPILER is GNU or Clang
  machine_code.py self-test CXX            both find what they look for

Why levels: a linker keeps one of several copies of an inline function. A copy made for AVX2 or AVX-512 would then run on
machines without it, so such instructions may stand only in functions that no other level defines.
"""
import re
import subprocess
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

Instruction = namedtuple("Instruction", "address bytes text")
LEVEL = re.compile(r"::cpu::(avx2|avx512|amx)::")


def functions(path):
    """Yields (demangled name, [Instruction]) of an object, archive or library."""
    dump = subprocess.run(["objdump", "-d", "-w", "-C", path], capture_output=True, text=True, check=True).stdout
    name, code = None, []
    for line in dump.splitlines():
        if line.endswith(">:"):
            if name:
                yield name, code
            name, code = line[line.index("<") + 1 : -2], []
        elif "\t" in line:
            address, raw, *text = line.split("\t")
            if text:
                code.append(Instruction(int(address.strip(" :"), 16), raw.split(), " ".join(text)))
    if name:
        yield name, code


# ---- levels

SEGMENTS = {"26", "2e", "36", "3e", "64", "65", "67"}


def needs(instruction):
    """The least level that has the instruction. In 64-bit code VEX begins with c4 or c5, EVEX with 62, and nothing else does."""
    first = next((byte for byte in instruction.bytes if byte not in SEGMENTS), "")
    if re.match(r"(tile|tdp|ldtilecfg|sttilecfg)", instruction.text):
        return "amx"
    if first == "62" or re.search(r"^k\w+ .*%k[0-7]", instruction.text):
        return "avx512"
    if first in ("c4", "c5") or instruction.text.startswith("popcnt"):
        return "avx2"
    return None


HAS = {None: {None}, "avx2": {None, "avx2"}, "avx512": {None, "avx2", "avx512"}, "amx": {None, "avx2", "avx512", "amx"}}


def check_levels(paths):
    faults, counted = [], {}
    for path in paths:
        found = False
        for name, code in functions(path):
            found = found or bool(code)
            levels = set(LEVEL.findall(name))
            level = levels.pop() if len(levels) == 1 else None
            bad = [i for i in code if needs(i) not in HAS[level]]
            if bad:
                faults.append(f"{path}: {name}\n    level {level or 'base'}, but {bad[0].text}")
            if any(needs(i) for i in code):
                counted[level] = counted.get(level, 0) + 1
        if not found:
            faults.append(f"{path}: no code found: is this an object file?")
    print("functions with instructions beyond x86-64, by level:", counted)
    return faults


# ---- loops

# The innermost loops of `level` in the functions whose names match `function` that hold an instruction for each pattern of `holds`, and no call and
# nothing of `lacks`. At least `at_least` of them must be found, and in none may more instructions than `most` (of that compiler) move a whole vector
# from or to the stack.
Loops = namedtuple("Loops", "name level function holds lacks at_least most")
NONE = {"GNU": 0, "Clang": 0}
EXP = "vpslld +\\$0x17"  # makes the exponent
LOOPS = [
    # clang 14 saves some scales of the nested formats, with 8 rows.
    Loops("linear, int8 dots", "avx512", "quantized_tile<", ["vpdpbusd"], [], 40, {"GNU": 0, "Clang": 10}),
    # 6 rows of two groups leave five registers: of the types with two scales in 32 columns clang 14 saves more.
    Loops("linear, int8 panels", "avx512", "CodePanel<.*add_products<", ["vpdpbusd"], [], 12, {"GNU": 4, "Clang": 40}),
    Loops("linear, floats", "avx512", "(plain_tile<|FloatPanel::add_products<)", ["vfmadd"], [], 20, {"GNU": 1, "Clang": 0}),
    # clang 14 moves half of the sums of 3 and 4 rows from register to register through the stack.
    Loops("attention scores", "avx512", "score_rows<", ["vfmadd", "prefetch"], [], 40, {"GNU": 0, "Clang": 22}),
    Loops("attention softmax", "avx512", "weigh", [EXP], ["vdiv"], 1, {"GNU": 0, "Clang": 3}),
    Loops("attention values", "avx512", "mix_rows<", ["vfmadd", "prefetch"], [], 40, NONE),
    Loops("quantize_row", "avx512", "quantize_row", ["vpmovdb"], [], 1, NONE),
    Loops("linear on tiles", "amx", "linear_on_tiles<.*Hardware", ["tdpbf16ps"], [], 3, NONE),
    # AVX2 has 16 registers. The sums of 4 rows fill them, so codes and scales move; those of fewer rows where scales are nested. The numbers of the
    # types are those of DType: Q4_0, Q4_1, Q8_0.
    Loops("Q4 and Q8, 1, 2 rows", "avx2", r"quantized_tile<\(\S*DType\)[347], [12]ul, 1ul>", ["vpmaddubsw"], [], 6, NONE),
    Loops("linear, int8 dots", "avx2", "quantized_tile<", ["vpmaddubsw"], [], 30, {"GNU": 90, "Clang": 132}),
    Loops("linear, int8 panels", "avx2", "CodePanel<.*add_products<", ["vpmaddubsw"], [], 12, {"GNU": 88, "Clang": 132}),
    Loops("linear, floats", "avx2", "(plain_tile<|FloatPanel::add_products<)", ["vfmadd"], [], 15, {"GNU": 2, "Clang": 2}),
    # Eight sums, eight vectors of keys or values, and the query.
    Loops("attention scores", "avx2", "score_rows<", ["vfmadd", "prefetch"], [], 12, {"GNU": 2, "Clang": 2}),
    Loops("attention values", "avx2", "mix_rows<", ["vfmadd", "prefetch"], [], 20, {"GNU": 2, "Clang": 4}),
    Loops("quantize_row", "avx2", "quantize_row", ["vpackssdw"], [], 1, NONE),
]


def loops_of(code):
    """(first, last) address of each loop: from where a jump goes back to, to the last such jump."""
    ends = {}
    for i in code:
        jump = re.match(r"j\w+ +([0-9a-f]+) <", i.text)
        if jump and int(jump[1], 16) <= i.address:
            ends[int(jump[1], 16)] = i.address
    return sorted(ends.items())


def hot_loops(code, row):
    """Bodies of the loops that `row` describes. Those that call something are the parts for widths that are no multiple of a vector."""
    bodies = [[i for i in code if first <= i.address <= last] for first, last in loops_of(code)]
    has = lambda body, pattern: any(re.match(pattern, i.text) for i in body)
    matching = [body for body in bodies if all(has(body, pattern) for pattern in row.holds)]
    for body in matching:
        inner = [b for b in matching if b is not body and body[0].address <= b[0].address and b[-1].address <= body[-1].address]
        if not inner and not any(has(body, pattern) for pattern in ["call", *row.lacks]):
            yield body


def on_stack(code, body):
    """Instructions that move a whole vector from or to the stack; scalars and broadcasts may lie there."""
    frame = "r[sb]p" if any(re.match(r"mov +%rsp,%rbp", i.text) for i in code) else "rsp"
    access = re.compile(r"\(%" + frame + r"[,)]")
    single = re.compile(r"v?\w+(ss|sd) |v?mov[dq] |v?pinsr|v?pextr|.*broadcast|.*\{1to")
    return [i.text for i in body if re.search("%[xyz]mm", i.text) and access.search(i.text) and not single.match(i.text)]


def check_loops(compiler, paths):
    code_of = [(name, code) for path in paths for name, code in functions(path)]
    faults = []
    print(f"{'hot loops':20} {'level':7} {'loops':>6} {'vector moves on the stack':>26} {'allowed':>8}")
    for row in LOOPS:
        found, worst = 0, 0
        for name, code in code_of:
            if f"::cpu::{row.level}::" not in name or not re.search("::" + row.function, name):
                continue
            for body in hot_loops(code, row):
                moves = on_stack(code, body)
                found, worst = found + 1, max(worst, len(moves))
                if len(moves) > row.most[compiler]:
                    faults.append(f"{name}\n    {len(moves)} moves in the loop at {body[0].address:x}: " + "; ".join(moves[:4]))
        print(f"{row.name:20} {row.level:7} {found:6} {worst:26} {row.most[compiler]:8}")
        if found < row.at_least:
            faults.append(f"{row.name} of {row.level}: {found} loops found, at least {row.at_least} expected")
    return faults


# ---- self-test

SOURCE = """
namespace made_up::cpu::avx512 {
template <int> void quantized_tile(const char* p, long n) {
  alignas(64) char spilled[64];
  do __asm__ volatile("vpdpbusd (%1), %%zmm2, %%zmm1\\n\\tvmovups MOVED" : "+m"(spilled) : "r"(p) : "memory");
  while (--n > 0);
}
template void quantized_tile<0>(const char*, long);
}
WIDE
"""


def compiled(cxx, folder, moved="%%zmm1, %%zmm3", wide=""):
    source = Path(folder) / "made_up.cpp"
    source.write_text(SOURCE.replace("MOVED", moved).replace("WIDE", wide))
    subprocess.run([cxx, "-std=c++20", "-O2", "-fomit-frame-pointer", "-c", str(source), "-o", str(source.with_suffix(".o"))], check=True)
    return [str(source.with_suffix(".o"))]


def self_test(cxx):
    """Which of the faults in made-up code are not found."""
    wide = "template <int> void inlined() { __asm__(\"vaddps %ymm0, %ymm1, %ymm2\"); }\ntemplate void inlined<0>();"
    other = "namespace made_up::cpu::avx2 { template <int> void f() { __asm__(\"vaddps %zmm0, %zmm1, %zmm2\"); } template void f<0>(); }"
    with tempfile.TemporaryDirectory() as folder:
        clean = compiled(cxx, folder)
        levels, loops = check_levels(clean), check_loops("GNU", clean)
        wrong = []
        if levels:
            wrong.append("clean code has faults of levels: " + levels[0])
        if any("moves" in fault for fault in loops) or not any("int8 dots of avx512: 1 loops" in fault for fault in loops):
            wrong.append("the clean loop is not the one loop found")
        if not any("linear on tiles of amx: 0 loops" in fault for fault in loops):
            wrong.append("loops that are missing are not missed")
        if not any("quantized_tile<0>" in fault and "1 moves" in fault for fault in check_loops("GNU", compiled(cxx, folder, "%%zmm1, %0"))):
            wrong.append("a spill in a loop is not found")
        for name, source in (("inlined<0>", wide), ("avx2::f<0>", other)):
            if not any(name in fault for fault in check_levels(compiled(cxx, folder, wide=source))):
                wrong.append(f"instructions beyond the level of {name} are not found")
    return wrong


def main():
    command, *rest = sys.argv[1:] or [""]
    if command == "levels" and rest:
        faults = check_levels(rest)
    elif command == "loops" and len(rest) > 1 and rest[0] in ("GNU", "Clang"):
        faults = check_loops(rest[0], rest[1:])
    elif command == "self-test" and len(rest) == 1:
        faults = self_test(rest[0])
    else:
        sys.exit(__doc__)
    print(*faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
