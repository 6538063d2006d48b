// Definitions of text/word_cutter.hpp: the pipeline and its making. The steps are in cutter_steps.ipp.
#pragma once

#include <corbel/impl/text/cutter_steps.ipp>
#include <corbel/impl/text/node_reader.ipp>
#include <corbel/text/word_cutter.hpp>

#include <fmt/format.h>
#include <optional>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text {

CORBEL_INLINE WordCutter::WordCutter() noexcept = default;
CORBEL_INLINE WordCutter::WordCutter(WordCutter&&) noexcept = default;
CORBEL_INLINE WordCutter& WordCutter::operator=(WordCutter&&) noexcept = default;
CORBEL_INLINE WordCutter::~WordCutter() = default;

namespace cutter {

using Steps = std::vector<std::unique_ptr<const CutterStep>>;

inline constexpr std::size_t kMaxSteps = 256;

CORBEL_INLINE Status read_behavior(const NodeReader& node, Behavior& behavior) {
  std::string_view name;
  CORBEL_RETURN_IF_ERROR(node.string("behavior", name));
  if (name.empty()) return {};
  struct Row {
    std::string_view name;
    Behavior behavior;
  };
  static constexpr Row kRows[] = {{"Removed", Behavior::kRemoved},
                                  {"Isolated", Behavior::kIsolated},
                                  {"MergedWithPrevious", Behavior::kMergedWithPrevious},
                                  {"MergedWithNext", Behavior::kMergedWithNext},
                                  {"Contiguous", Behavior::kContiguous}};
  for (const Row& row : kRows) {
    if (row.name != name) continue;
    behavior = row.behavior;
    return {};
  }
  return node.unknown("behavior", name);
}

// A step that cuts by a pattern: a scanner where it is a published one, else the engine.
CORBEL_INLINE Status add_pattern(std::string_view pattern, Behavior behavior, bool invert, Steps& steps) {
  const Scanner scanner = find_scanner(pattern);
  if (scanner != nullptr && behavior == Behavior::kIsolated) {
    steps.push_back(std::make_unique<ScannerStep>(scanner));
    return {};
  }
  Result<Regex> compiled = Regex::compile(pattern);
  if (!compiled.ok()) return unsupported_pattern(compiled.status());
  Regex regex = *std::move(compiled);
  steps.push_back(std::make_unique<RegexStep>(std::move(regex), behavior, invert));
  return {};
}

CORBEL_INLINE Status add_split(const NodeReader& node, Steps& steps) {
  Behavior behavior = Behavior::kIsolated;
  bool invert = false;
  if (node.find("behavior") == nullptr) return node.missing("behavior");
  CORBEL_RETURN_IF_ERROR(read_behavior(node, behavior));
  CORBEL_RETURN_IF_ERROR(node.flag("invert", invert));
  const json::Value* pattern = node.find("pattern");
  if (pattern == nullptr) return node.missing("pattern");
  if (const json::Value* literal = pattern->find("String"); literal != nullptr && literal->is_string()) {
    steps.push_back(std::make_unique<LiteralStep>(std::string(literal->as_string()), behavior, invert));
    return {};
  }
  const json::Value* regex = pattern->find("Regex");
  if (regex == nullptr || !regex->is_string()) return node.wrong("pattern", "{\"Regex\": ...} or {\"String\": ...}");
  const Status added = add_pattern(regex->as_string(), behavior, invert, steps);
  return added.with_place(fmt::format("{}.pattern", node.place()));
}

CORBEL_INLINE Status add_byte_level(const NodeReader& node, Steps& steps, bool& byte_level) {
  bool prefix = true;
  bool pattern = true;
  CORBEL_RETURN_IF_ERROR(node.flag("add_prefix_space", prefix));
  CORBEL_RETURN_IF_ERROR(node.flag("use_regex", pattern));
  if (prefix) steps.push_back(std::make_unique<PrefixSpaceStep>());
  if (pattern) steps.push_back(std::make_unique<ScannerStep>(scan::gpt2));
  byte_level = true;
  return {};
}

CORBEL_INLINE Status add_metaspace(const NodeReader& node, Steps& steps) {
  std::string_view replacement = "\xE2\x96\x81";
  std::string_view scheme;
  bool prefix = true;
  bool split = true;
  CORBEL_RETURN_IF_ERROR(node.string("replacement", replacement));
  CORBEL_RETURN_IF_ERROR(node.string("prepend_scheme", scheme));
  CORBEL_RETURN_IF_ERROR(node.flag("add_prefix_space", prefix));
  CORBEL_RETURN_IF_ERROR(node.flag("split", split));
  if (replacement.empty() || detail::decode_utf8(replacement, 0).length != replacement.size()) {
    return node.wrong("replacement", "one character");
  }
  Prepend prepend = prefix ? Prepend::kAlways : Prepend::kNever;
  if (scheme == "first") {
    prepend = Prepend::kFirst;
  } else if (scheme == "always") {
    prepend = Prepend::kAlways;
  } else if (scheme == "never") {
    prepend = Prepend::kNever;
  } else if (!scheme.empty()) {
    return node.unknown("prepend_scheme", scheme);
  }
  steps.push_back(std::make_unique<MetaspaceStep>(std::string(replacement), prepend));
  if (split) {
    steps.push_back(std::make_unique<LiteralStep>(std::string(replacement), Behavior::kMergedWithNext, false));
  }
  return {};
}

CORBEL_INLINE Status add_fixed_length(const NodeReader& node, Steps& steps) {
  std::uint64_t length = 5;
  if (const json::Value* member = node.find("length"); member != nullptr) {
    if (member->type() != json::Type::kUint) return node.wrong("length", "a number above 0");
    length = member->as_uint();
  }
  if (length == 0) return Status(Errc::kVocabInvalid, fmt::format("{}.length: 0", node.place()));
  steps.push_back(std::make_unique<FixedLengthStep>(length));
  return {};
}

CORBEL_INLINE Status add_step(std::string_view type, const NodeReader& node, Steps& steps, bool& byte_level) {
  if (type == "ByteLevel") return add_byte_level(node, steps, byte_level);
  if (type == "Split") return add_split(node, steps);
  if (type == "Metaspace") return add_metaspace(node, steps);
  if (type == "FixedLength") return add_fixed_length(node, steps);
  if (type == "Digits") {
    bool individual = false;
    CORBEL_RETURN_IF_ERROR(node.flag("individual_digits", individual));
    steps.push_back(
        std::make_unique<CharacterStep<IsNumber>>(individual ? Behavior::kIsolated : Behavior::kContiguous));
    return {};
  }
  if (type == "Punctuation") {
    Behavior behavior = Behavior::kIsolated;
    CORBEL_RETURN_IF_ERROR(read_behavior(node, behavior));
    steps.push_back(std::make_unique<CharacterStep<IsPunctuation>>(behavior));
    return {};
  }
  if (type == "Whitespace") {
    steps.push_back(std::make_unique<WordsAndMarksStep>());
    return {};
  }
  if (type == "WhitespaceSplit") {
    steps.push_back(std::make_unique<CharacterStep<IsSpace>>(Behavior::kRemoved));
    return {};
  }
  if (type == "BertPreTokenizer") {
    steps.push_back(std::make_unique<CharacterStep<IsSpace>>(Behavior::kRemoved));
    steps.push_back(std::make_unique<CharacterStep<IsPunctuation>>(Behavior::kIsolated));
    return {};
  }
  if (type == "CharDelimiterSplit") {
    std::string_view delimiter;
    CORBEL_RETURN_IF_ERROR(node.string("delimiter", delimiter));
    if (delimiter.empty() || detail::decode_utf8(delimiter, 0).length != delimiter.size()) {
      return node.wrong("delimiter", "one character");
    }
    steps.push_back(std::make_unique<LiteralStep>(std::string(delimiter), Behavior::kRemoved, false));
    return {};
  }
  if (type == "UnicodeScripts") {
    steps.push_back(std::make_unique<ScriptsStep>());
    return {};
  }
  return Status(Errc::kUnsupported,
                fmt::format("{}.type: '{}' is not supported", node.place(), detail::printable(type, 64)));
}

}  // namespace cutter

CORBEL_INLINE Result<WordCutter> WordCutter::from_json(const json::Value& node, std::string_view place) {
  WordCutter made;
  if (node.is_null()) return made;
  struct Pending {
    const json::Value* node;
    std::string place;
  };
  std::vector<Pending> pending;  // the next one last
  pending.push_back({&node, std::string(place)});
  for (std::size_t seen = 0; !pending.empty(); ++seen) {
    const Pending now = std::move(pending.back());
    pending.pop_back();
    if (seen + pending.size() > cutter::kMaxSteps) {
      return Status(Errc::kLimitExceeded, fmt::format("{}: more than {} steps", place, cutter::kMaxSteps));
    }
    const NodeReader reader(*now.node, now.place);
    if (!now.node->is_object()) return Status(Errc::kTypeMismatch, fmt::format("{}: expected an object", now.place));
    std::string_view type;
    CORBEL_RETURN_IF_ERROR(reader.string("type", type));
    if (type.empty()) return reader.missing("type");
    if (type == "Sequence") {
      const json::Value* parts = reader.find("pretokenizers");
      if (parts == nullptr) return reader.missing("pretokenizers");
      if (!parts->is_array()) return reader.wrong("pretokenizers", "an array");
      if (parts->items().size() > cutter::kMaxSteps) {
        return Status(Errc::kLimitExceeded, fmt::format("{}: more than {} steps", now.place, cutter::kMaxSteps));
      }
      for (std::size_t i = parts->items().size(); i-- > 0;) {
        pending.push_back({&parts->items()[i], fmt::format("{}.pretokenizers[{}]", now.place, i)});
      }
      continue;
    }
    // What follows ByteLevel sees its stand-ins.
    if (made.byte_level_) made.steps_.push_back(std::make_unique<cutter::SpellBytesStep>());
    made.byte_level_ = false;
    CORBEL_RETURN_IF_ERROR(cutter::add_step(type, reader, made.steps_, made.byte_level_));
  }
  return made;
}

CORBEL_INLINE Result<WordCutter> WordCutter::from_name(std::string_view name) {
  const Pretokenizer* row = find_pretokenizer(name);
  if (row == nullptr) {
    return Status(Errc::kUnsupported,
                  fmt::format("the pre-tokenizer '{}' is not supported", detail::printable(name, 64)));
  }
  WordCutter made;
  for (const std::string_view pattern : row->patterns) {
    if (pattern.empty()) break;
    CORBEL_RETURN_IF_ERROR(cutter::add_pattern(pattern, cutter::Behavior::kIsolated, false, made.steps_));
  }
  made.byte_level_ = row->byte_level;
  return made;
}

CORBEL_INLINE Result<std::string_view> WordCutter::cut(std::string_view text, bool at_start,
                                                       CutScratch& scratch) const {
  scratch.words.clear();
  if (text.empty()) return text;
  scratch.words.push_back({0, static_cast<std::uint32_t>(text.size())});
  cutter::State state{text, at_start, scratch};
  for (const auto& step : steps_) CORBEL_RETURN_IF_ERROR(step->apply(state));
  return state.text;
}

CORBEL_INLINE std::uint64_t WordCutter::memory_bytes() const noexcept {
  std::uint64_t bytes = sizeof(*this) + steps_.capacity() * sizeof(steps_[0]);
  for (const auto& step : steps_) bytes += step->memory_bytes();
  return bytes;
}

}  // namespace text
CORBEL_NAMESPACE_END
