#!/usr/bin/env python3
"""Makes tests/data/tokenizers: tiny tokenizers shaped like those of published families, and what the reference library
(PyPI `tokenizers`) makes of a list of texts with each. Everything here was written or trained for this project.

  python make_tokenizers.py OUT [--texts N]      # N random texts a tokenizer beside the fixed list (default 14)
"""
import json
import os
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = """
The river bends twice before it reaches the mill, and the miller's daughter counts 1234 sacks by 5 o'clock.
They're sure it's 2024; we've said we'll see, I'd say so, and I'm glad. HELLO World, HelloWorld, helloWorld!
for (int i = 0; i < 10; ++i) { total += values[i] * 3.14159; }  // a comment
def add(a, b):\n    return a + b\n\n\nclass Thing:\n\tpass\n
Der Fluß fließt, die Mühle mahlt; wir müssen über 1000 Säcke zählen. L'été, c'était déjà naïf, garçon.
Быстрая река течёт мимо мельницы. Η μυλωνού μετράει τα τσουβάλια. طاحونة على النهر. נהר ליד הטחנה.
河流在到达磨坊之前转了两次弯。水車小屋の娘は袋を数えます。방앗간 집 딸이 자루를 셉니다. नदी चक्की के पास।
http://example.org/a?b=c&d=e user@example.org #tag @name $100 50% 🙂 👩‍👩‍👧 🇩🇪 ½ ² Ⅷ ﬁ ＡＢＣ
   spaces   and\ttabs\r\nand lines\n\n\n   end   
""".strip("\n").split("\n")
CORPUS = CORPUS * 3 + [w for line in CORPUS for w in line.split(" ")]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
TEKKEN = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
CJK = "[一-龥\u3040-ゟ゠-ヿ]+"
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK_LLM = [r"[\r\n]", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆա-և]+",
                r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", r"[一-龥ࠀ-一가-퟿]+"]
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
FALCON_PUNCT = r"[0-9][0-9][0-9]"

ALPHABET = pre_tokenizers.ByteLevel.alphabet()


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(pre, size=320, specials=("<|endoftext|>",), normalizer=None, model=None, byte_decoder=True):
    tokenizer = Tokenizer(models.BPE(**(model or {})))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(specials), initial_alphabet=ALPHABET,
                                  show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def raw_byte_level():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def sequence(*steps):
    return pre_tokenizers.Sequence(list(steps))


def sentencepiece_bpe(normalizer, pre, decoder, size=440, fuse_unk=True, byte_fallback=True, specials=("<unk>", "<s>", "</s>")):
    """A BPE over characters with byte pieces, as converted SentencePiece models are."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse_unk, byte_fallback=byte_fallback))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    train_pre = pre if pre is not None else pre_tokenizers.Split("▁", "merged_with_next")
    tokenizer.pre_tokenizer = train_pre
    pieces = list(specials) + ([f"<0x{b:02X}>" for b in range(256)] if byte_fallback else [])
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=pieces, limit_alphabet=60, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [t for t in data["added_tokens"] if not t["content"].startswith("<0x")]
    data["model"]["fuse_unk"], data["model"]["byte_fallback"] = fuse_unk, byte_fallback
    data["model"]["unk_token"] = "<unk>"
    tokenizer = Tokenizer.from_str(json.dumps(data))
    if pre is None:
        data = json.loads(tokenizer.to_str())
        data["pre_tokenizer"] = None
        tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.decoder = decoder
    return tokenizer


def with_bos(tokenizer, bos="<s>", eos=None):
    pieces = [(bos, tokenizer.token_to_id(bos))]
    single = f"{bos} $A"
    if eos:
        pieces.append((eos, tokenizer.token_to_id(eos)))
        single += f" {eos}"
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=single + " $B", special_tokens=pieces)
    return tokenizer


def llama_decoder(strip=True):
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))


def metaspace(scheme="always", split_=True):
    return pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split=split_)


def unigram(normalizer, pre, decoder, size=300, specials=("<pad>", "</s>", "<unk>"), byte_fallback=False):
    tokenizer = Tokenizer(models.Unigram())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoder
    extra = [f"<0x{b:02X}>" for b in range(256)] if byte_fallback else []
    trainer = trainers.UnigramTrainer(vocab_size=size, special_tokens=list(specials) + extra, unk_token="<unk>",
                                      show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    if byte_fallback:
        data = json.loads(tokenizer.to_str())
        data["added_tokens"] = [t for t in data["added_tokens"] if not t["content"].startswith("<0x")]
        data["model"]["byte_fallback"] = True
        tokenizer = Tokenizer.from_str(json.dumps(data))
    return tokenizer


def bert(lowercase=True, strip_accents=None, size=260):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=size, special_tokens=specials,
                                                                    show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", tokenizer.token_to_id("[CLS]")), ("[SEP]", tokenizer.token_to_id("[SEP]"))])
    return tokenizer


def word_level():
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(CORPUS, trainers.WordLevelTrainer(vocab_size=200, special_tokens=["[UNK]", "[PAD]"],
                                                                    show_progress=False))
    return tokenizer


def edit(tokenizer, change):
    data = json.loads(tokenizer.to_str())
    change(data)
    return Tokenizer.from_str(json.dumps(data))


def add(tokenizer, *tokens):
    for token in tokens:
        if isinstance(token, AddedToken) and not token.special:
            tokenizer.add_tokens([token])
        else:
            tokenizer.add_special_tokens([token])
    return tokenizer


def ignore_merges(tokenizer):
    return edit(tokenizer, lambda d: d["model"].update(ignore_merges=True))


def pair_merges(tokenizer, as_pairs):
    text = tokenizer.to_str()
    data = json.loads(text)
    merges = data["model"]["merges"]
    if as_pairs:
        data["model"]["merges"] = [m.split(" ") if isinstance(m, str) else m for m in merges]
    else:
        data["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in merges]
    return data


def chat(tokenizer):
    return add(tokenizer, "<|im_start|>", "<|im_end|>", AddedToken("<think>", special=False, normalized=False),
               AddedToken("<tool_call>", special=False, normalized=True))


def clip():
    tokenizer = Tokenizer(models.BPE(unk_token="<|endoftext|>", continuing_subword_prefix="", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
                                                 normalizers.Lowercase()])
    tokenizer.pre_tokenizer = sequence(
        split(r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", "removed",
              True), pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<|startoftext|>", "<|endoftext|>"],
                                  initial_alphabet=ALPHABET, end_of_word_suffix="</w>", show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def openai_gpt():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder("</w>")
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def subword_prefix():
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["[UNK]"], continuing_subword_prefix="##",
                                  show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def flags():
    """Added tokens with every flag, over a tokenizer that lowercases."""
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), size=300, normalizer=normalizers.Lowercase())
    return add(tokenizer, AddedToken("<LEFT>", lstrip=True, special=False, normalized=False),
               AddedToken("<RIGHT>", rstrip=True, special=False, normalized=False),
               AddedToken("<both>", lstrip=True, rstrip=True, special=True, normalized=False),
               AddedToken("Word", single_word=True, special=False, normalized=True),
               AddedToken("whole", single_word=True, special=False, normalized=False),
               AddedToken("<NORM>", special=False, normalized=True), AddedToken("<norm>x", special=True, normalized=True),
               AddedToken("  ", special=False, normalized=False))


def phi_spaces():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    return add(tokenizer, *[AddedToken(" " * n, special=False, normalized=True) for n in range(8, 1, -1)],
               AddedToken("\t\t", special=False, normalized=True))


def roberta():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), specials=("<s>", "<pad>", "</s>", "<unk>"))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return add(tokenizer, AddedToken("<mask>", lstrip=True, special=True, normalized=False))


def cased_bert():
    tokenizer = bert(lowercase=False, size=280)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def gemma():
    tokenizer = sentencepiece_bpe(normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"),
                                  llama_decoder(False), specials=("<pad>", "<eos>", "<bos>", "<unk>"))
    add(tokenizer, "<start_of_turn>", "<end_of_turn>", *[AddedToken("\n" * n, special=False, normalized=False)
                                                         for n in (2, 3)],
        *[AddedToken("▁" * n, special=False, normalized=False) for n in (2, 3, 4)])
    return with_bos(tokenizer, "<bos>")


def llama3():
    tokenizer = ignore_merges(byte_level(sequence(split(LLAMA3), raw_byte_level()),
                                         specials=("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>")))
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)])])
    return tokenizer


def build():
    nf = normalizers
    return {
        "gpt2": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
        "gpt_neox": lambda: phi_spaces(),
        "olmo": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizer=nf.NFC()),
        "roberta": roberta,
        "llama3": llama3,
        "smollm": lambda: chat(byte_level(sequence(pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)))),
        "qwen2": lambda: chat(byte_level(sequence(split(QWEN2), raw_byte_level()), normalizer=nf.NFC())),
        "gpt_oss": lambda: ignore_merges(byte_level(sequence(split(O200K), raw_byte_level()), specials=("<|start|>", "<|end|>", "<|return|>"))),
        "tekken": lambda: with_bos(ignore_merges(byte_level(sequence(split(TEKKEN), raw_byte_level()), specials=("<unk>", "<s>", "</s>")))),
        "deepseek_v3": lambda: with_bos(byte_level(sequence(split(r"\p{N}{1,3}"), split(CJK), split(DEEPSEEK3), raw_byte_level()),
                                                   specials=("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>")), "<｜begin▁of▁sentence｜>"),
        "deepseek_llm": lambda: byte_level(sequence(*[split(p) for p in DEEPSEEK_LLM], pre_tokenizers.Digits(True), raw_byte_level())),
        "falcon": lambda: byte_level(sequence(pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
                                              pre_tokenizers.Digits(False), split(FALCON_PUNCT))),
        "bloom": lambda: byte_level(sequence(split(BLOOM), raw_byte_level())),
        "llama2": lambda: with_bos(sentencepiece_bpe(nf.Sequence([nf.Prepend("▁"), nf.Replace(" ", "▁")]), None, llama_decoder())),
        "llama2_new": lambda: with_bos(sentencepiece_bpe(None, metaspace("first", False), llama_decoder())),
        "mistral_v3": lambda: with_bos(sentencepiece_bpe(None, metaspace("first", False), llama_decoder(), fuse_unk=True), "<s>", "</s>"),
        "unk_bpe": lambda: sentencepiece_bpe(None, metaspace("always", True), decoders.Metaspace("▁", "always"), size=200, byte_fallback=False, fuse_unk=False),
        "gemma": gemma,
        "t5": lambda: with_eos(unigram(nf.Sequence([nf.NFKC(), nf.Replace(Regex(" {2,}"), " ")]), metaspace(), decoders.Metaspace())),
        "xlm": lambda: unigram(nf.Sequence([nf.Nmt(), nf.NFKC(), nf.Strip(False, True), nf.Replace(Regex(" {2,}"), "▁")]),
                               sequence(pre_tokenizers.WhitespaceSplit(), metaspace()), decoders.Metaspace()),
        "unigram_bytes": lambda: unigram(None, metaspace("first", False), llama_decoder(), size=420, byte_fallback=True),
        "bert": bert,
        "bert_cased": cased_bert,
        "word_level": word_level,
        "clip": clip,
        "openai_gpt": openai_gpt,
        "subword_prefix": subword_prefix,
        "flags": flags,
        "albert": lambda: unigram(nf.Sequence([nf.Replace("``", '"'), nf.NFKD(), nf.StripAccents(), nf.Lowercase()]), metaspace(), decoders.Metaspace()),
    }


def with_eos(tokenizer):
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                             special_tokens=[("</s>", tokenizer.token_to_id("</s>"))])
    return tokenizer


FIXED = ["", " ", "  ", "a", "Hello", " Hello", "  Hello world ", "Hello\nworld\n\n", "\t\n\r\n x", "it's we'Ve THEY'LL 'd",
         "1234567 12 1", "３４５ ½ ² Ⅷ", "naïve café e\u0301 Å Å", "ＡＢＣ ﬁ ①", "河流 水車小屋 방앗간", "🙂👩‍👩‍👧🇩🇪", "\u00a0x\u3000y\u2003z\u200bq",
         "<s>Hello</s> <s> x", "a<|im_start|>user\nhi<|im_end|>\n", "<think> x </think><tool_call>", "<|endoftext|>  <|endoftext|>",
         "x <LEFT> y <RIGHT> z <both> w", "Word word sWord Word, whole wholes whole", "<NORM><norm><norm>x <Norm>X", "<mask> a <mask>b",
         "HTTPServer parseXMLFile iPhone", "!!! ... ??? --- ___ ''' \"\"\"", "a,b;c:d(e)[f]{g}", "\u0301\u0301x\u0301", "\U0001d400\U00010437\U000e0001",
         "do not  can't . , ? ! ' n't", "ab▁c▁▁d ▁", "<unk>[UNK] <pad> [CLS]", "x" * 30, "the the the the", "\ufffd\ufeff\u0000\u0001\x7f",
         "ثلاثة ١٢٣ ৪৫ नमस्ते", "ǅ ſ ẞ İ ı Σ ς", "if (x) {\n    y();\n}\n", "  \n  \n", "0x1F 1e-9 3.14", "\r", "\n \n", "don’t “x”—y…"]


def random_text(rng):
    kinds = ["aeiou HELo wrld tsn", " \t\n\r\u00a0\u3000", "0123456789½²", "'.,!?-_()<>|[]{}\"#/:", "äößéñçÅ", "бвгдерека", "河流水車の娘はカナ방앗간딸",
             "\u0301\u0308\u0327\u200d\ufe0f", "🙂👩👧🇩🇪", "ＡｂＣ①ﬁⅧ", "ابتنهر", "▁", "नदीचक्की"]
    pieces = ["'s", "'LL", "<s>", "</s>", "<|im_end|>", "<think>", "<unk>", "  ", "\n\n", "Hello", " the", "<both>", "Word", "[MASK]", "<mask>"]
    out = ""
    for _ in range(rng.randint(1, 12)):
        r = rng.random()
        if r < 0.15:
            out += rng.choice(pieces)
        elif r < 0.2:
            c = rng.randint(1, 0x10FFFF)
            # What came with Unicode 16 is known to some tables only.
            out += chr(c) if not 0xD800 <= c <= 0xDFFF and __import__("unicodedata").category(chr(c)) != "Cn" else "x"
        else:
            kind = kinds[min(int(rng.expovariate(0.35)), len(kinds) - 1)]
            out += "".join(rng.choice(kind) for _ in range(rng.randint(1, 6)))
    return out


def cases(tokenizer, texts, with_text):
    rows = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=True).ids
        row = {"text": text, "ids": ids} if with_text else {"ids": ids}
        for key, skip in (("decoded", True), ("special", False)):
            back = tokenizer.decode(ids, skip_special_tokens=skip)
            if back != row.get("decoded", text):
                row[key] = back
        rows.append(row)
    return rows


def main():
    out = sys.argv[1]
    many = "--texts" in sys.argv
    count = int(sys.argv[sys.argv.index("--texts") + 1]) if many else 4
    os.makedirs(out, exist_ok=True)
    for at, (name, make) in enumerate(build().items()):
        tokenizer = make()
        data = json.loads(tokenizer.to_str())
        if data["model"]["type"] == "BPE":
            data = pair_merges(tokenizer, at % 2 == 0)
        if data["model"]["type"] == "Unigram":
            data["model"]["vocab"] = [[piece, round(score, 3)] for piece, score in data["model"]["vocab"]]
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        tokenizer = Tokenizer.from_str(text)
        with open(f"{out}/{name}.json", "w", encoding="utf-8") as f:
            f.write(text + "\n")
        rng = random.Random(at if many else 0)
        texts = FIXED + [random_text(rng) for _ in range(count)]
        if not many:
            with open(f"{out}/texts.json", "w", encoding="utf-8") as f:
                json.dump(texts, f, ensure_ascii=False, separators=(",", ":"))
                f.write("\n")
        with open(f"{out}/{name}.jsonl", "w", encoding="utf-8") as f:
            for row in cases(tokenizer, texts, many):
                f.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
        print(name, tokenizer.get_vocab_size())


if __name__ == "__main__":
    main()
