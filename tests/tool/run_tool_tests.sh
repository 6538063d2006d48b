#!/usr/bin/env bash
# The program corbel as its users meet it: each verb, its output and exit codes, and wrong input. Prints PASSED, FAILED and SKIPPED lines.
#
#   tests/tool/run_tool_tests.sh PROGRAM
#
# CORBEL_TEST_MODELS: folder of the real models; what needs them is skipped without.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

corbel=${1:?usage: tests/tool/run_tool_tests.sh PROGRAM}
tiny=tests/data/golden/llama-q4_k_m/model.gguf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
num_failed=0

passed() { echo "PASSED: tool: $1"; }
failed() {
  echo "FAILED: tool: $1"
  sed 's/^/    /' "$work/err" 2> /dev/null | head -5
  num_failed=$((num_failed + 1))
}
check() { # check NAME COMMAND...: the command succeeds
  local name=$1
  shift
  if "$@" > "$work/check" 2>&1; then passed "$name"; else failed "$name"; fi
}
run() { timeout 300 "$corbel" "$@" > "$work/out" 2> "$work/err" < /dev/null; }
succeeds() { # succeeds NAME ARGUMENT...
  local name=$1
  shift
  run "$@"
  local code=$?
  if [[ $code == 0 ]]; then passed "$name"; else failed "$name: exit code $code"; fi
}
fails() { # fails CODE PATTERN NAME ARGUMENT...: this exit code, nothing on stdout, one line on stderr that matches
  local code=$1 pattern=$2 name=$3
  shift 3
  run "$@"
  local actual=$?
  if [[ $actual != "$code" ]]; then
    failed "$name: exit code $actual and not $code"
  elif [[ -s $work/out ]]; then
    failed "$name: output on stdout"
  elif [[ $(wc -l < "$work/err") != 1 ]]; then
    failed "$name: not one line on stderr"
  elif ! grep -qE "^corbel: .*$pattern" "$work/err"; then
    failed "$name: the line does not match $pattern"
  else
    passed "$name"
  fi
}
output_is() { # output_is NAME TEXT: what the last run printed
  if [[ $(cat "$work/out") == "$2" ]]; then passed "$1"; else failed "$1: got $(head -c 200 "$work/out")"; fi
}
output_has() {
  if grep -qE -- "$2" "$work/out"; then passed "$1"; else failed "$1: got $(head -c 200 "$work/out")"; fi
}

# --- one clear line ----------------------------------------------------------------------------------------------------

fails 1 'no\\x0Afolder/x: cannot be written' "a newline in a path is escaped" inspect "$tiny" --tensor token_embd.weight --out $'no\nfolder/x'
mkdir "$work/empty" && : > "$work/empty/tokenizer.json"
fails 1 'tokenizer.json: the file is empty' "an empty tokenizer.json" tokenize "$work/empty"

# --- wrong usage: 2 ----------------------------------------------------------------------------------------------------

fails 2 "subcommand" "no verb"
fails 2 '"sing"' "an unknown verb" sing
fails 2 '""' "an empty verb" ""
fails 2 "MODEL" "no MODEL" chat
fails 2 "frobnicate" "an unknown option" chat "$tiny" --frobnicate
fails 2 "temp" "--temp nan" chat "$tiny" --prompt Hi --temp nan
fails 2 "temp" "--temp below 0" chat "$tiny" --prompt Hi --temp -1
fails 2 "temp" "--temp inf" chat "$tiny" --prompt Hi --temp inf
fails 2 "temp" "--temp without a number" chat "$tiny" --prompt Hi --temp warm
fails 2 "temp" "--temp beyond float32" chat "$tiny" --prompt Hi --temp 1e308
for text in "" " 7" 7x 0x10 010 1e2 +1; do
  fails 2 "max-tokens.*\"" "--max-tokens '$text'" chat "$tiny" --prompt Hi --max-tokens "$text"
done
for text in "" " 1" 0x1 1,5; do fails 2 "temp.*\"" "--temp '$text'" chat "$tiny" --prompt Hi --temp "$text"; done
fails 2 "top_p" "--top-p above 1" chat "$tiny" --prompt Hi --top-p 1.5
fails 2 "min-p" "--min-p nan" chat "$tiny" --prompt Hi --min-p nan
fails 2 "seed" "--seed -1" chat "$tiny" --prompt Hi --seed -1
fails 2 "seed" "--seed 2^64" chat "$tiny" --prompt Hi --seed 18446744073709551616
if ! grep -qw amx_tile /proc/cpuinfo; then
  fails 1 "amx" "an --isa that the CPU lacks is no reason to take another backend" bench "$tiny" --isa amx
fi
closed_stdin() { [[ $(timeout 60 "$corbel" tokenize "$tiny" <&-) == "[]" ]]; }
check "a closed stdin is an empty text, not the model's file" closed_stdin
fails 2 "threads" "--threads 0" chat "$tiny" --threads 0
fails 2 "kv" "an unknown --kv" chat "$tiny" --kv f8
fails 2 "isa" "an unknown --isa" chat "$tiny" --isa sse
fails 2 "backend" "an unknown --backend" chat "$tiny" --backend gpu
fails 2 "out" "--tensor without --out" inspect "$tiny" --tensor output_norm.weight
fails 2 "conversation" "no --conversation" render "$tiny"
fails 2 "role" "an unknown --role" logits "$tiny" --ids x.json --role boss
fails 2 "" "nothing to measure" bench "$tiny" --prompt 0 --gen 0
succeeds "--help" --help
output_has "--help names the verbs" "perplexity"
succeeds "--version" --version
output_has "--version" "^corbel [0-9]+\.[0-9]+\.[0-9]+ "

# --- wrong input: 1 ----------------------------------------------------------------------------------------------------

printf '\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01' > "$work/picture.jpg"
head -c 4096 /dev/zero >> "$work/picture.jpg"
head -c 200000 "$tiny" > "$work/truncated.gguf"
LC_ALL=C sed 's/llama/lhama/g' "$tiny" > "$work/unknown.gguf"
: > "$work/empty.gguf"
for verb in chat inspect tokenize logits bench; do
  more=()
  if [[ $verb == logits ]]; then
    echo '[1, 2]' > "$work/two.json"
    more=(--ids "$work/two.json" --greedy 1)
  fi
  fails 1 "missing.gguf" "$verb: a missing file" $verb missing.gguf "${more[@]}"
  fails 1 "tests" "$verb: a folder" $verb tests "${more[@]}"
  fails 1 "picture.jpg" "$verb: a picture" $verb "$work/picture.jpg" "${more[@]}"
  fails 1 "empty.gguf" "$verb: an empty file" $verb "$work/empty.gguf" "${more[@]}"
  fails 1 "truncated.gguf" "$verb: a truncated download" $verb "$work/truncated.gguf" "${more[@]}"
done
fails 1 "lhama" "an unknown architecture" logits "$work/unknown.gguf" --ids "$work/two.json" --greedy 1
run inspect "$work/unknown.gguf" --plan 64 --program
code=$?
check "inspect: an unknown architecture: exit code 1" test $code == 1
output_has "inspect: an unknown architecture: what the file says all the same" "general.architecture: \"lhama\""
output_has "inspect: an unknown architecture: its tensors" "token_embd.weight"
check "inspect: an unknown architecture: one line that says why" test "$(wc -l < "$work/err")" == 1
check "inspect: an unknown architecture: the reason" grep -q '^corbel: .*unknown.gguf: general.architecture: "lhama" is not supported' "$work/err"
run inspect "$work/unknown.gguf" --json
check "inspect --json: an unknown architecture: exit code 1" test $? == 1
output_has "inspect --json: an unknown architecture: the reason" '"problem":"general.architecture'
for verb in inspect "convert x.gguf" tokenize "render --conversation x"; do
  fails 2 "activations" "${verb%% *} has no activations" $verb "$tiny" --activations scheme
done
fails 1 "no.json" "a missing file of ids" logits "$tiny" --ids "$work/no.json" --greedy 1
echo '{"ids": [1, "a"]}' > "$work/bad.json"
fails 1 "bad.json" "ids that are no numbers" logits "$tiny" --ids "$work/bad.json" --greedy 1
echo '[1, 2' > "$work/bad.json"
fails 1 "bad.json" "ids that are no JSON" logits "$tiny" --ids "$work/bad.json" --greedy 1
echo '[1, 99999999]' > "$work/bad.json"
fails 1 "99999999" "ids outside the vocabulary" logits "$tiny" --ids "$work/bad.json" --greedy 1
echo "[1$(printf ', 1%.0s' {1..70000})]" > "$work/long.json"
fails 1 "context" "a prompt longer than the context" logits "$tiny" --ids "$work/long.json" --greedy 1
fails 1 "nowhere" "an output that cannot be written" logits "$tiny" --ids "$work/two.json" --out "$work/nowhere/x"
fails 1 "no_such" "a tensor that is not there" inspect "$tiny" --tensor no_such --out "$work/x"
fails 1 "context" "bench beyond the context" bench "$tiny" --prompt 1000000
timeout 60 "$corbel" inspect "$tiny" > /dev/full 2> "$work/err"
check "a full disk behind stdout: exit code 1" test $? == 1
timeout 60 "$corbel" --help > /dev/full 2> "$work/err"
check "a full disk behind --help: exit code 1" test $? == 1
timeout 60 "$corbel" chat "$tiny" --prompt Hi --max-tokens 3 > /dev/full 2> "$work/err"
check "a full disk behind chat: exit code 1" test $? == 1
timeout 60 "$corbel" tokenize "$tiny" > /dev/full 2> "$work/err" < /dev/null
check "a full disk behind a short output: the reason" grep -q "No space left" "$work/err"
: > "$work/x.jinja"
fails 1 '""' "a file without a name" render "$work/x.jinja" --conversation ""

# --- packed cache ------------------------------------------------------------------------------------------------------

echo "[1, 2, 3]" > "$work/packed.json"
succeeds "logits without a packed cache" logits "$tiny" --ids "$work/packed.json" --out "$work/plain.logits"
for pass in first second; do
  succeeds "--packed-cache, $pass load" logits "$tiny" --ids "$work/packed.json" --packed-cache "$work/packed" --out "$work/packed.logits"
  check "--packed-cache, $pass load: the same bits" cmp "$work/plain.logits" "$work/packed.logits"
done
check "--packed-cache: one file of weights" test "$(ls "$work/packed" | grep -c 'packed$')" == 1
kept=$(ls "$work/packed"/*.packed)
cp "$kept" "$work/elsewhere"
rm "$kept"
echo mine > "$work/mine"
ln -s "$work/mine" "$kept"
succeeds "--packed-cache: a link in place of the file" logits "$tiny" --ids "$work/packed.json" --packed-cache "$work/packed" --out "$work/packed.logits"
check "--packed-cache: what a link leads to is left alone" grep -qx mine "$work/mine"
check "--packed-cache: the link is replaced" cmp "$kept" "$work/elsewhere"
succeeds "--packed-cache that cannot be written: a note" logits "$tiny" --ids "$work/packed.json" --packed-cache "$work/packed.json" --out "$work/packed.logits"
check "--packed-cache that cannot be written: the note" grep -q "packed cache: .* is not written" "$work/err"

# --- inspect -----------------------------------------------------------------------------------------------------------

succeeds "inspect" inspect "$tiny" --plan 256 --program
output_has "inspect: metadata" "general.architecture: \"llama\""
output_has "inspect: tensors" "token_embd.weight"
output_has "inspect: family" "^family +llama$"
output_has "inspect: parameters" "^parameters +[0-9.]+[KMB]? \([0-9]+\)$"
output_has "inspect: quantization" "^quantization +.*Q4_K"
output_has "inspect: context" "^context +[0-9]+ tokens$"
output_has "inspect: memory" "^memory +[0-9.]+ [KM]iB for [0-9]+ tokens: weights .*kv_cache"
output_has "inspect: backend" "^backend +[a-z]+: "
output_has "inspect: plan" "^  kv_cache +[1-9][0-9]*"
output_has "inspect: program before" "^program before the passes: [0-9]+ ops"
output_has "inspect: program after" "^program after the passes: [0-9]+ ops"
output_has "inspect: what is tuned" "^speed: prefetch [0-9]+ bytes ahead \\(.*\\), (streams|one stream) \\(.*\\), regions from [0-9]+ operations on \\(.*\\)$"
succeeds "inspect --json" inspect "$tiny" --plan 256 --program --json
output_has "inspect --json" '"summary":.*"family":"llama".*"tensors":.*"plan":.*"total":.*"program":'
succeeds "inspect --tensor" inspect "$tiny" --tensor output_norm.weight --out "$work/norm"
run inspect "$tiny" --tensor output_norm.weight --out -
check "inspect --tensor --out -: stdout" cmp "$work/out" "$work/norm"
check "inspect --tensor: whole float32 values" test $(($(stat -c %s "$work/norm") % 4)) == 0 -a -s "$work/norm"
cp "$tiny" "$work/own.gguf"
fails 1 "output is a file that is read" "inspect --out onto the model" inspect "$work/own.gguf" --tensor output_norm.weight --out "$work/own.gguf"
echo "[1, 2]" > "$work/own.json"
fails 1 "output is a file that is read" "logits --out onto the model" logits "$work/own.gguf" --ids "$work/own.json" --out "$work/own.gguf"
fails 1 "output is a file that is read" "logits --out onto the ids" logits "$work/own.gguf" --ids "$work/own.json" --out "$work/own.json"
check "--out onto an input: it is as before" cmp "$tiny" "$work/own.gguf"
for folder in tests/data/golden_quantized/*; do
  for name in $(head -c 8000 "$folder/golden.safetensors" | grep -ao '"dequant\.[^"]*"' | tr -d '"'); do
    succeeds "inspect --tensor: $name" inspect "$folder/golden.safetensors" --tensor "$name" --out "$work/expected"
    succeeds "inspect --tensor: $(basename "$folder") ${name#dequant.}" inspect "$folder" --tensor "${name#dequant.}" --out "$work/weight"
    check "inspect --tensor: $(basename "$folder") ${name#dequant.} is dequantized" cmp "$work/expected" "$work/weight"
  done
done

# --- convert -----------------------------------------------------------------------------------------------------------

succeeds "convert: gguf to gguf" convert "$tiny" "$work/same.gguf"
check "convert: gguf to gguf keeps every byte" cmp "$tiny" "$work/same.gguf"
succeeds "convert --type" convert "$tiny" "$work/q8.gguf" --type q8_0
run inspect "$work/q8.gguf"
output_has "convert --type: the new type" "^quantization +Q8_0$"
succeeds "convert: gguf to safetensors" convert "$tiny" "$work/model.safetensors"
run inspect "$work/model.safetensors"
output_has "convert: keys go to __metadata__" "general.architecture: \"llama\""
fails 1 "output is the input" "convert onto the input" convert "$work/q8.gguf" "$work/q8.gguf"
mkdir "$work/cut.part"
fails 1 "cut.part: is there already" "convert beside what a killed run left" convert "$tiny" "$work/cut"
rmdir "$work/cut.part"
ln -s q8.gguf "$work/link.gguf"
ln "$work/q8.gguf" "$work/second.gguf"
cp "$work/q8.gguf" "$work/before"
for name in link second; do
  fails 1 "output is the input" "convert onto the input by another name ($name)" convert "$work/q8.gguf" "$work/$name.gguf"
  fails 1 "output is the input" "convert onto the input, read by another name ($name)" convert "$work/$name.gguf" "$work/q8.gguf"
done
check "convert onto the input: it is as before" cmp "$work/q8.gguf" "$work/before"
mkdir "$work/folder.gguf"
fails 1 "folder.gguf" "convert onto a folder" convert "$tiny" "$work/folder.gguf"
rmdir "$work/folder.gguf"
echo old > "$work/old.gguf"
succeeds "convert onto a file" convert "$tiny" "$work/old.gguf"
check "convert onto a file: replaced" cmp "$tiny" "$work/old.gguf"
ln -s "$PWD/$tiny" "$work/tiny.gguf"
echo old > "$work/target.gguf"
ln -s target.gguf "$work/to_file.gguf"
ln -s ../"$(basename "$work")"/made.gguf "$work/to_none.gguf"
for name in to_file:target to_none:made; do
  succeeds "convert onto a link (${name%:*})" convert "$tiny" "$work/${name%:*}.gguf"
  check "convert onto a link (${name%:*}): its target is written" cmp "$tiny" "$work/${name#*:}.gguf"
  check "convert onto a link (${name%:*}): the link stays" test -L "$work/${name%:*}.gguf"
done
fails 1 "output is the input" "convert onto a link to the input" convert "$tiny" "$work/tiny.gguf"
mkfifo "$work/pipe.gguf"
fails 1 "pipe.gguf: cannot write: is a pipe" "convert onto a pipe" convert "$tiny" "$work/pipe.gguf"
check "convert onto a pipe: it stays" test -p "$work/pipe.gguf"
ln -s /dev/null "$work/null.gguf"
fails 1 "null.gguf: cannot write: leads to /dev/null, a device" "convert onto a link to a device" convert "$tiny" "$work/null.gguf"
ln -s loop.gguf "$work/loop.gguf"
fails 1 "loop.gguf: .*too many symbolic links" "convert onto a link to itself" convert "$tiny" "$work/loop.gguf"
mkdir "$work/empty"
ln -s empty "$work/to_folder"
fails 1 "to_folder: is a symbolic link" "convert onto a link in place of a folder" convert "$tiny" "$work/to_folder"
# A copy that takes a while, since most of the input is a hole, is interrupted as soon as it has begun.
hole=6442450944
printf 'P\0\0\0\0\0\0\0%-80s' "{\"t\":{\"dtype\":\"I8\",\"shape\":[$hole],\"data_offsets\":[0,$hole]}}" > "$work/large.safetensors"
truncate -s $((hole + 88)) "$work/large.safetensors"
mkdir "$work/cut"
"$corbel" convert "$work/large.safetensors" "$work/cut/off.safetensors" > "$work/out" 2> "$work/err" < /dev/null &
cut=$!
until [[ -e $work/cut/off.safetensors.part ]] || ! kill -0 "$cut" 2> /dev/null; do :; done
kill -INT "$cut"
wait "$cut"
check "convert: interrupted: exit code 1" test $? == 1
check "convert: interrupted: one line that says so" grep -qE "^corbel: .*off.safetensors: interrupted; .* removed" "$work/err"
check "convert: interrupted: nothing is left" rmdir "$work/cut"
rm "$work/large.safetensors"
for name in x.txt x.bin x.json; do fails 1 "$name.*not written" "convert to $name" convert "$tiny" "$work/$name"; done
run convert --help
output_has "convert --help: what is replaced" "replaced"
succeeds "convert: gguf to a folder" convert "$tiny" "$work/from_gguf"
check "convert: gguf to a folder: its documents" test -s "$work/from_gguf/config.json" -a -s "$work/from_gguf/tokenizer.json"
echo '[3, 4, 5, 6]' > "$work/four.json"
run logits "$tiny" --backend ref --ids "$work/four.json" --out "$work/of_gguf"
run logits "$work/from_gguf" --backend ref --ids "$work/four.json" --out "$work/of_folder"
check "convert: gguf to a folder: the same logits" cmp "$work/of_gguf" "$work/of_folder"
check "convert: gguf to a folder: the same ids" test "$(echo 'Hello <s>' | "$corbel" tokenize "$tiny" --special)" == "$(echo 'Hello <s>' | "$corbel" tokenize "$work/from_gguf" --special)"
fails 2 "type" "convert --type of no type" convert "$tiny" "$work/x.gguf" --type q9
fails 1 "no such file|not a folder" "convert into a folder that is not there" convert "$tiny" "$work/none/x.gguf"
mkdir "$work/hf"
cp "$work/model.safetensors" "$work/hf/"
echo '{"model_type":"llama","torch_dtype":"float32"}' > "$work/hf/config.json"
echo '{"temperature":0.5}' > "$work/hf/generation_config.json"
succeeds "convert: folder to weights alone" convert "$work/hf" "$work/alone.safetensors"
check "convert: folder to weights alone: what is left behind" grep -q "has no config.json, generation_config.json" "$work/err"
succeeds "convert: folder to folder" convert "$work/hf" "$work/hf16" --type bf16
check "convert: folder to folder: config.json" grep -q '"torch_dtype":"bfloat16"' "$work/hf16/config.json"
fails 1 "not empty" "convert into a folder with files" convert "$work/hf" "$work/hf16"
check "convert: nothing is left of what failed" test -z "$(find "$work" -name '*.part' -o -name 'x.gguf' -o -name folder)"

# --- logits ------------------------------------------------------------------------------------------------------------

ids=20
echo "[$(seq -s ', ' 3 $((ids + 2)))]" > "$work/ids.json"
for backend in ref cpu; do
  succeeds "logits: $backend" logits "$tiny" --backend $backend --ids "$work/ids.json" --out "$work/$backend" --greedy 5
  output_has "logits: $backend: five greedy ids" '^\[[0-9]+(, [0-9]+){4}\]$'
  check "logits: $backend: size" test $(($(stat -c %s "$work/$backend") % (4 * ids))) == 0 -a -s "$work/$backend"
  cp "$work/out" "$work/greedy"
  for chunk in 1 7 64; do
    run logits "$tiny" --backend $backend --ids "$work/ids.json" --out "$work/chunk" --greedy 5 --chunk $chunk
    check "logits: $backend: chunks of $chunk change no bit" cmp "$work/$backend" "$work/chunk"
    check "logits: $backend: chunks of $chunk change no greedy id" cmp "$work/greedy" "$work/out"
  done
  run logits "$tiny" --backend $backend --ids "$work/ids.json" --out "$work/threads" --threads 1
  check "logits: $backend: one thread changes no bit" cmp "$work/$backend" "$work/threads"
  run logits "$tiny" --backend $backend --ids "$work/ids.json" --greedy 5
  check "logits: $backend: greedy alone" cmp "$work/greedy" "$work/out"
  run logits "$tiny" --backend $backend --ids "$work/ids.json"
  check "logits: $backend: to stdout" cmp "$work/$backend" "$work/out"
done
succeeds "logits: as generated" logits "$tiny" --ids "$work/ids.json" --role generated --chunk 1 --greedy 2
if grep -qw avx512_vnni /proc/cpuinfo; then
  run logits "$tiny" --isa avx512 --ids "$work/ids.json" --out "$work/avx512"
  run logits "$tiny" --isa amx --amx emulate --ids "$work/ids.json" --out "$work/amx" --role generated
  check "logits: --isa amx: generated rows as at avx512" cmp "$work/avx512" "$work/amx"
  succeeds "logits: --amx emulate" logits "$tiny" --amx emulate --ids "$work/ids.json" --greedy 2
fi
fails 2 "amx" "an unknown --amx" logits "$tiny" --amx sometimes --ids "$work/ids.json"
succeeds "logits: --isa base" logits "$tiny" --isa base --ids "$work/ids.json" --greedy 2
for kv in f32 bf16 f16; do succeeds "logits: --kv $kv" logits "$tiny" --kv $kv --ids "$work/ids.json" --greedy 2; done

# --- chat: the sampling of the model's authors ---------------------------------------------------------------------------

cp -r tests/data/golden/arcee "$work/authors"
vocabulary=$(for i in {0..95}; do printf '"w%d":%d,' "$i" "$i"; done)
echo '{"pre_tokenizer":{"type":"Whitespace"},"model":{"type":"WordLevel","unk_token":"w0","vocab":{'"${vocabulary%,}"'}}}' > "$work/authors/tokenizer.json"
say() { # say FILE SAMPLING ARGUMENT...: a reply, where generation_config.json is SAMPLING
  local file=$1
  echo "$2" > "$work/authors/generation_config.json"
  shift 2
  run chat "$work/authors" --prompt "w1 w2 w3" --max-tokens 16 "$@" && cp "$work/out" "$work/$file"
}
same() { # same NAME FILE FILE
  check "chat: $1" cmp "$work/$2" "$work/$3"
}
differ() { ! cmp -s "$work/$1" "$work/$2"; }
say plain '{}' --seed 5
check "chat: a folder that says nothing of sampling" test -s "$work/plain"
say usual '{}' --seed 5 --temp 0.7 --top-k 0 --top-p 0.9 --min-p 0
same "without a word of the authors: 0.7 and 0.9" plain usual
say greedy '{}' --temp 0
say first '{"do_sample":false}' --seed 1
same "do_sample false: the likeliest token" first greedy
say asked '{"temperature":1.5,"top_k":40,"top_p":0.95,"min_p":0.01}' --seed 5
say given '{}' --seed 5 --temp 1.5 --top-k 40 --top-p 0.95 --min-p 0.01
same "temperature, top_k, top_p and min_p as the authors say" asked given
check "chat: which is not the usual" differ asked plain
say given '{}' --seed 5 --temp 1.5 --top-k 0 --top-p 1
say asked '{"temperature":1.5}' --seed 5
same "what they leave out is off" asked given
say asked '{"temperature":1.5,"top_k":40}' --temp 0
same "options go before them" asked greedy
say asked '{"repetition_penalty":50.0}' --temp 0
check "chat: repetition_penalty" differ asked greedy
echo '{"temperature":-1}' > "$work/authors/generation_config.json"
fails 1 "authors: generation_config.json: temperature" "chat: a temperature that is none" chat "$work/authors" --prompt w1

# --- render ------------------------------------------------------------------------------------------------------------

cat > "$work/chat.jinja" <<'END'
{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}{% if tools is none %}no tools{% endif %}{{ mood }}
END
echo '{"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": true, "bos_token": "<s>", "mood": "!"}' > "$work/talk.json"
succeeds "render" render "$work/chat.jinja" --conversation "$work/talk.json"
output_is "render: raw" "<s><user>Hi</user><assistant>no tools!"
{
  cat "$work/talk.json"
  echo '{"template": "{{ a + 1 }}", "context": {"a": 2}}'
  echo '{"template": "{{ raise_exception(\"no way\") }}", "context": {}}'
  echo 'no json'
} > "$work/lines.jsonl"
succeeds "render: lines" render "$work/chat.jinja" --conversation "$work/lines.jsonl"
check "render: a line each" test "$(wc -l < "$work/out")" == 4
output_has "render: output" '^\{"output": "<s><user>Hi</user><assistant>no tools!"\}$'
output_has "render: own template" '^\{"output": "3"\}$'
output_has "render: error" '^\{"error": ".*no way.*"\}$'
sed -n 2p "$work/lines.jsonl" > "$work/own.jsonl"
succeeds "render: own template without MODEL" render --conversation "$work/own.jsonl"
output_is "render: own template without MODEL" '{"output": "3"}'
fails 1 "template" "render: no template at all" render --conversation "$work/talk.json"

# --- bench -------------------------------------------------------------------------------------------------------------

succeeds "bench" bench "$tiny" --prompt 16 --gen 4 --depth 8 --batch 2 --repeat 2 --json --threads 1
spread='\{"median":[0-9.e+-]+,"min":[0-9.e+-]+,"max":[0-9.e+-]+\}'
output_has "bench: JSON" "^\{\"prefill_tokens_per_s\":$spread,\"decode_tokens_per_s\":$spread,\"ttft_ms\":$spread,\"load_ms\":[0-9.e+-]+,\"first_token_ms\":[0-9.e+-]+,\"first_token_resident_bytes\":[0-9]+,\"first_token_peak_bytes\":[0-9]+,\"resident_bytes\":[0-9]+,\"isa\":\"[a-z0-9]+\",\"threads\":1\}$"
succeeds "bench: text" bench "$tiny" --prompt 8 --gen 0 --repeat 1

# --- real models -------------------------------------------------------------------------------------------------------

smollm2=${CORBEL_TEST_MODELS:-}/SmolLM2-135M-Instruct.Q4_1.gguf
gemma3=${CORBEL_TEST_MODELS:-}/gemma-3-270m-q4_k_m.gguf
if [[ -f $smollm2 ]]; then
  printf 'The capital of France is' | "$corbel" tokenize "$smollm2" > "$work/out" 2> "$work/err"
  output_is "tokenize" "[504, 3575, 282, 4649, 314]"
  echo '[504, 3575, 282, 4649, 314]' | "$corbel" tokenize "$smollm2" --decode > "$work/out" 2> "$work/err"
  output_is "tokenize --decode" "The capital of France is"
  printf '"<|im_start|>"\n""\n' > "$work/strings"
  "$corbel" tokenize "$smollm2" --lines --special < "$work/strings" > "$work/out" 2> "$work/err"
  output_is "tokenize --lines --special" $'[1]\n[]'
  "$corbel" tokenize "$smollm2" --lines < "$work/strings" > "$work/out" 2> "$work/err"
  check "tokenize: control tokens are text without --special" test "$(head -n 1 "$work/out")" != "[1]"
  printf '[1]\n[504]\n' | "$corbel" tokenize "$smollm2" --lines --decode --special > "$work/out" 2> "$work/err"
  output_is "tokenize --lines --decode" $'"<|im_start|>"\n"The"'
  printf '\xff\xfe\x80' | "$corbel" tokenize "$smollm2" > "$work/out" 2> "$work/err"
  check "tokenize: any bytes" test $? == 0
  printf 'no json\n' | "$corbel" tokenize "$smollm2" --lines > "$work/out" 2> "$work/err"
  check "tokenize --lines: a bad line is an error" test $? == 1

  question="What are the three primary colours? Answer in one sentence."
  succeeds "chat" chat "$smollm2" --prompt "$question" --temp 0 --max-tokens 30
  output_has "chat: the answer" "[Rr]ed, [Bb]lue"
  check "chat: statistics on stderr" grep -qE '^\[prompt [0-9]+ tokens, 0 reused; .* tokens/s; [a-z_]+\]$' "$work/err"
  cp "$work/out" "$work/first"
  printf '%s\nAnd which is the warmest?\n' "$question" |
    timeout 300 "$corbel" chat "$smollm2" --temp 0 --max-tokens 30 > "$work/out" 2> "$work/err"
  check "chat: lines: the first reply is the same" test "$(head -n "$(wc -l < "$work/first")" "$work/out")" == "$(cat "$work/first")"
  check "chat: lines: the second turn reuses the first" grep -qE '^\[prompt [0-9]+ tokens, [1-9][0-9]+ reused' "$work/err"
  run chat "$smollm2" --prompt "Tell me a story." --seed 3 --max-tokens 20
  cp "$work/out" "$work/first"
  run chat "$smollm2" --prompt "Tell me a story." --seed 3 --max-tokens 20 --threads 1
  check "chat: the same seed gives the same reply on one thread" cmp "$work/first" "$work/out"
  head -c 60000 < <(yes word) > "$work/words"
  fails 1 "fit" "chat: a prompt longer than the context" chat "$smollm2" --prompt "$(cat "$work/words")"

  "$corbel" chat "$smollm2" --prompt "Count from one to one thousand." --max-tokens 0 > "$work/out" 2> "$work/err" &
  pid=$!
  for _ in {1..600}; do # until it has begun to speak
    if [[ -s $work/out ]] || ! kill -0 $pid 2> /dev/null; then break; fi
    sleep 0.1
  done
  kill -INT $pid
  for _ in {1..300}; do # and until it has ended
    kill -0 $pid 2> /dev/null || break
    sleep 0.1
  done
  kill -KILL $pid 2> /dev/null
  wait $pid
  check "chat: Ctrl-C stops the reply and not the program" test $? == 0
  check "chat: Ctrl-C: the statistics say so" grep -q '; stopped\]$' "$work/err"
else
  echo "SKIPPED: tool: tokenize and chat with SmolLM2 (no $(basename "$smollm2") in CORBEL_TEST_MODELS)"
fi
if [[ -f $gemma3 ]]; then
  printf 'Hi' | "$corbel" tokenize "$gemma3" --add-special > "$work/out" 2> "$work/err"
  output_has "tokenize --add-special" '^\[2, '
  succeeds "chat: a model without a chat template" chat "$gemma3" --prompt "The capital of France is" --temp 0 --max-tokens 8
  output_has "chat: it continues the text" "the .* France"
  check "chat: and says so in one line" test "$(grep -c 'has no chat template' "$work/err")" == 1
else
  echo "SKIPPED: tool: chat with Gemma 3 (no $(basename "$gemma3") in CORBEL_TEST_MODELS)"
fi
echo "$num_failed failed"
[[ $num_failed == 0 ]]
