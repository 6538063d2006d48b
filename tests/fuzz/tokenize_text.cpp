// Target tokenize_text: any text through every pre-tokenizer and both kinds of BPE. Ids are those of the plain algorithm,
// the scanners cut as the regular expression engine does, valid text comes back, and the work is linear in the text.
#include <corbel/checkpoint/json.hpp>
#include <corbel/text/pretokenizer.hpp>
#include <corbel/text/tokenizer_model.hpp>
#include <corbel/text/word_cutter.hpp>
#include <corbel/tokenizer.hpp>

#include <cmath>
#include <map>

#include "fuzz/fuzz.hpp"
#include "fuzz/tokenizer_checks.hpp"
#include "support/tiny_vocabulary.hpp"

using namespace corbel;
using namespace corbel_fuzz;
using corbel_test::Ids;
using corbel_test::Spec;

namespace {

constexpr const char* kPretokenizers[] = {"gpt-2", "smollm", "deepseek-coder", "llama-bpe", "qwen2", "tekken", "gpt-4o"};

/// A tokenizer and what the plain algorithm needs to know about it.
struct Kind {
  Tokenizer tokenizer;
  const text::Pretokenizer* pretokenizer = nullptr;  // null: SentencePiece
  bool prefix = false;
  std::map<std::string, TokenId> ids;                            // text of a piece
  std::map<std::pair<std::string, std::string>, double> merges;  // order of a merge, lower first
  std::map<std::string, double> scores;                          // order of a piece
};

Kind byte_level(const char* pre) {
  Spec spec = corbel_test::byte_level();
  spec.pre = pre;
  Kind kind{corbel_test::make(spec), text::find_pretokenizer(pre), false, {}, {}, {}};
  for (std::size_t i = 0; i < spec.merges.size(); ++i) {
    const std::size_t space = spec.merges[i].find(' ');
    kind.merges[{spec.merges[i].substr(0, space), spec.merges[i].substr(space + 1)}] = static_cast<double>(i);
  }
  for (std::size_t i = 0; i < spec.tokens.size(); ++i)
    if (spec.types[i] == corbel_test::kNormal) kind.ids[spec.tokens[i]] = static_cast<TokenId>(i);
  return kind;
}

Kind sentence_piece(bool prefix) {
  const Spec spec = corbel_test::sentence_piece();
  Metadata metadata = spec.metadata();
  metadata.set("tokenizer.ggml.add_space_prefix", MetaValue::from_bool(prefix));
  Kind kind{Tokenizer::from_metadata(metadata).value(), nullptr, prefix, {}, {}, {}};
  for (std::size_t i = 0; i < spec.tokens.size(); ++i) {
    kind.ids[spec.tokens[i]] = static_cast<TokenId>(i);
    if (spec.types[i] == corbel_test::kNormal) kind.scores[spec.tokens[i]] = -static_cast<double>(spec.scores[i]);
  }
  return kind;
}

std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = std::max(detail::decode_utf8(text, at).length, 1u);
    out.emplace_back(text.substr(at, length));
    at += length;
  }
  return out;
}

/// Merges the best neighbours, the leftmost of equals, until none is left.
template <class Order>
void merge_slowly(std::vector<std::string>& symbols, Order&& order) {
  for (;;) {
    double best = HUGE_VAL;
    std::size_t where = 0;
    for (std::size_t at = 0; at + 1 < symbols.size(); ++at) {
      if (const double now = order(symbols[at], symbols[at + 1]); now < best) {
        best = now;
        where = at;
      }
    }
    if (best == HUGE_VAL) return;
    symbols[where] += symbols[where + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

std::vector<std::string> cut(const text::WordCutter& cutter, std::string_view text) {
  text::CutScratch scratch;
  const Result<std::string_view> result = cutter.cut(text, true, scratch);
  FUZZ_CHECK(result.ok() && *result == text, result.status().message());
  FUZZ_CHECK(scratch.steps <= 4096 + 600 * text.size(), std::to_string(scratch.steps));
  std::vector<std::string> words;
  std::size_t begin = 0;
  for (const text::Word& word : scratch.words) {
    FUZZ_CHECK(word.begin == begin && word.end > word.begin && word.end <= text.size(), "words out of order");
    words.emplace_back(text.substr(word.begin, word.end - word.begin));
    FUZZ_CHECK(detail::is_utf8(words.back()), "a word that ends inside a character");
    begin = word.end;
  }
  FUZZ_CHECK(begin == text.size(), "words that do not cover the text");
  return words;
}

/// Published patterns are cut by scanners; in parentheses they go through the engine. (The scanner of single digits knows
/// the numbers of Unicode 17, U+11DE0 and U+16FF4 and on, as the reference does.)
void check_scanners(const text::Pretokenizer& row, std::string_view text) {
  if (text.find("\xF0\x91\xB7") != text.npos || text.find("\xF0\x96\xBF") != text.npos) return;
  static std::map<std::string_view, std::pair<text::WordCutter, text::WordCutter>> cutters;
  if (cutters.count(row.name) == 0) {
    json::Value::Array steps;
    for (const std::string_view pattern : row.patterns) {
      if (pattern.empty()) break;
      steps.push_back(json::Value::object({{"type", json::Value::string("Split")},
                                           {"pattern", json::Value::object({{"Regex", json::Value::string("(?:" + std::string(pattern) + ")")}})},
                                           {"behavior", json::Value::string("Isolated")},
                                           {"invert", json::Value::boolean(false)}}));
    }
    const json::Value node =
        json::Value::object({{"type", json::Value::string("Sequence")}, {"pretokenizers", json::Value::array(std::move(steps))}});
    auto fast = text::WordCutter::from_name(row.name);
    auto slow = text::WordCutter::from_json(node, "pre_tokenizer");
    FUZZ_CHECK(fast.ok() && slow.ok(), slow.status().message());
    cutters.emplace(row.name, std::pair(*std::move(fast), *std::move(slow)));
  }
  const auto& [fast, slow] = cutters.at(row.name);
  const std::vector<std::string> words = cut(fast, text), expected = cut(slow, text);
  if (words == expected) return;
  std::string shown(row.name);
  for (const std::string& word : words) shown += "|" + detail::printable(word, 100);
  shown += " expected ";
  for (const std::string& word : expected) shown += "|" + detail::printable(word, 100);
  FUZZ_CHECK(words == expected, shown);
}

Ids slow_byte_level(const Kind& kind, std::string_view text) {
  static std::map<std::string_view, text::WordCutter> cutters;
  const std::string_view name = kind.pretokenizer->name;
  if (cutters.count(name) == 0) cutters.emplace(name, *text::WordCutter::from_name(name));
  Ids ids;
  for (const std::string& word : cut(cutters.at(name), text)) {
    if (const auto whole = kind.ids.find(corbel_test::stand_ins(word));
        kind.pretokenizer->whole_words && whole != kind.ids.end()) {
      ids.push_back(whole->second);
      continue;
    }
    std::vector<std::string> symbols;
    for (const char c : word) symbols.push_back(corbel_test::stand_in(static_cast<unsigned char>(c)));
    merge_slowly(symbols, [&](const std::string& left, const std::string& right) {
      const auto found = kind.merges.find({left, right});
      return found == kind.merges.end() ? HUGE_VAL : found->second;
    });
    for (const std::string& symbol : symbols) ids.push_back(kind.ids.at(symbol));
  }
  return ids;
}

// To SentencePiece, U+2581 and a space are the same.
std::string plain_spaces(std::string_view text) {
  std::string out;
  for (const std::string& c : characters(text)) out += c == "\xE2\x96\x81" ? std::string(" ") : c;
  return out;
}

Ids slow_sentence_piece(const Kind& kind, std::string_view text) {
  std::vector<std::string> symbols;
  for (std::string& symbol : characters(text)) symbols.push_back(symbol == " " ? "\xE2\x96\x81" : std::move(symbol));
  if (kind.prefix && !symbols.empty()) symbols.insert(symbols.begin(), "\xE2\x96\x81");
  merge_slowly(symbols, [&](const std::string& left, const std::string& right) {
    const auto found = kind.scores.find(left + right);
    return found == kind.scores.end() ? HUGE_VAL : found->second;
  });
  Ids ids;
  for (const std::string& symbol : symbols) {
    if (const auto found = kind.scores.find(symbol); found != kind.scores.end()) {
      ids.push_back(kind.ids.at(symbol));
    } else {
      for (const char c : symbol) ids.push_back(3 + static_cast<unsigned char>(c));
    }
  }
  return ids;
}

}  // namespace

// The first byte chooses the tokenizer; the rest is the text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const std::vector<Kind> kinds = [] {
    std::vector<Kind> out = {sentence_piece(true), sentence_piece(false)};
    for (const char* pre : kPretokenizers) out.push_back(byte_level(pre));
    return out;
  }();
  Input input(data, size);
  const Kind& kind = kinds[input.below(static_cast<std::uint32_t>(kinds.size()))];
  const std::string text(input.rest());
  const bool sound = detail::is_utf8(text);
  if (sound && text.size() <= 4096) {
    const auto rows = text::all_pretokenizers();
    check_scanners(rows[(data[0] + text.size()) % rows.size()], text);
  }

  const text::TextSpan literal = {text.size(), true};
  std::uint64_t steps = 0;
  const Result<Ids> ids = kind.tokenizer.model()->encode(text, {&literal, 1}, false, steps);
  check_status(ids.status());
  FUZZ_CHECK(ids.ok(), ids.status().message());
  const double length = static_cast<double>(text.size()) + 16;
  FUZZ_CHECK(static_cast<double>(steps) <= 60 * length + 4 * length * std::log2(length), std::to_string(steps));

  const std::string back = kind.tokenizer.decode(*ids).value();
  if (sound) FUZZ_CHECK(back == (kind.pretokenizer != nullptr ? text : plain_spaces(text)), back);
  if (!sound && kind.pretokenizer != nullptr) {
    std::string expected;  // every byte that belongs to no character is U+FFFD
    for (const std::string& c : characters(text)) expected += detail::is_utf8(c) ? c : std::string("\xEF\xBF\xBD");
    FUZZ_CHECK(back == expected, back);
  }
  check_stream(kind.tokenizer, *ids, false);
  checked_encode(kind.tokenizer, text, {.parse_special = true, .add_special = true});

  if (sound && text.size() <= 600 && text.find("[user]") == text.npos) {
    const Ids slow = kind.pretokenizer != nullptr ? slow_byte_level(kind, text) : slow_sentence_piece(kind, text);
    FUZZ_CHECK(slow == *ids, text);
  }
  return 0;
}
