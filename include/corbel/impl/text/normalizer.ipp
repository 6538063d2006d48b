// Definitions of text/normalizer.hpp. The steps are in normalizer_steps.ipp.
#pragma once

#include <corbel/impl/text/node_reader.ipp>
#include <corbel/impl/text/normalizer_steps.ipp>
#include <corbel/text/normalizer.hpp>

#include <algorithm>
#include <fmt/format.h>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text {

CORBEL_INLINE Normalizer::Normalizer() noexcept = default;
CORBEL_INLINE Normalizer::Normalizer(Normalizer&&) noexcept = default;
CORBEL_INLINE Normalizer& Normalizer::operator=(Normalizer&&) noexcept = default;
CORBEL_INLINE Normalizer::~Normalizer() = default;

namespace normal {

using Steps = std::vector<std::unique_ptr<const NormalizerStep>>;

inline constexpr std::size_t kMaxSteps = 256;

// False where a character does not belong in base64 (RFC 4648).
CORBEL_INLINE bool decode_base64(std::string_view text, std::string& out) {
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  out.reserve(text.size() / 4 * 3 + 3);
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    std::uint32_t value = 0;
    if (c >= 'A' && c <= 'Z') {
      value = static_cast<std::uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      value = static_cast<std::uint32_t>(c - 'a') + 26;
    } else if (c >= '0' && c <= '9') {
      value = static_cast<std::uint32_t>(c - '0') + 52;
    } else if (c == '+') {
      value = 62;
    } else if (c == '/') {
      value = 63;
    } else {
      return false;
    }
    bits = (bits << 6 | value) & 0xFFFFFFu;
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count & 0xFFu);
    }
  }
  return count < 6;
}

CORBEL_INLINE Status add_charsmap(const NodeReader& node, Steps& steps) {
  const json::Value* member = node.find("precompiled_charsmap");
  if (member == nullptr || member->is_null()) return {};  // no map changes nothing
  if (!member->is_string()) return node.wrong("precompiled_charsmap", "a string");
  const std::string place = fmt::format("{}.precompiled_charsmap", node.place());
  std::string map;
  if (!decode_base64(member->as_string(), map)) {
    return Status(Errc::kVocabInvalid, fmt::format("{}: not base64", place));
  }
  if (map.empty()) return {};
  auto step = CharsmapStep::make(std::move(map));
  if (!step.ok()) return step.status().with_place(place);
  steps.push_back(std::move(*step));
  return {};
}

CORBEL_INLINE Status add_replace(const NodeReader& node, Steps& steps) {
  const json::Value* pattern = node.find("pattern");
  if (pattern == nullptr) return node.missing("pattern");
  if (node.find("content") == nullptr) return node.missing("content");
  std::string_view content;
  CORBEL_RETURN_IF_ERROR(node.string("content", content));
  const json::Value* literal = pattern->find("String");
  const json::Value* regex = pattern->find("Regex");
  const json::Value* text = literal != nullptr ? literal : regex;
  if (text == nullptr || !text->is_string()) return node.wrong("pattern", "{\"Regex\": ...} or {\"String\": ...}");
  if (text->as_string().empty()) {
    return Status(Errc::kVocabInvalid, fmt::format("{}.pattern: empty", node.place()));
  }
  if (literal != nullptr) {
    steps.push_back(std::make_unique<LiteralReplaceStep>(std::string(text->as_string()), std::string(content)));
    return {};
  }
  auto compiled = Regex::compile(text->as_string());
  if (!compiled.ok()) return unsupported_pattern(compiled.status()).with_place(fmt::format("{}.pattern", node.place()));
  steps.push_back(std::make_unique<RegexReplaceStep>(std::move(*compiled), std::string(content)));
  return {};
}

CORBEL_INLINE Status add_bert(const NodeReader& node, Steps& steps) {
  bool clean = true;
  bool ideographs = true;
  bool lower = true;
  CORBEL_RETURN_IF_ERROR(node.flag("clean_text", clean));
  CORBEL_RETURN_IF_ERROR(node.flag("handle_chinese_chars", ideographs));
  CORBEL_RETURN_IF_ERROR(node.flag("lowercase", lower));
  bool strip = lower;  // where the file does not say
  CORBEL_RETURN_IF_ERROR(node.flag("strip_accents", strip));
  if (clean) steps.push_back(std::make_unique<CharacterwiseStep<CleanText>>());
  if (ideographs) steps.push_back(std::make_unique<CharacterwiseStep<SpaceIdeographs>>());
  if (strip) {
    steps.push_back(std::make_unique<FormStep>(NormalForm::kNfd));
    steps.push_back(std::make_unique<CharacterwiseStep<DropNonspacingMarks>>());
  }
  if (lower) steps.push_back(std::make_unique<LowercaseStep>());
  return {};
}

CORBEL_INLINE Status add_step(std::string_view type, const NodeReader& node, Steps& steps) {
  struct FormName {
    std::string_view name;
    NormalForm form;
  };
  static constexpr FormName kForms[] = {
      {"NFC", NormalForm::kNfc}, {"NFD", NormalForm::kNfd}, {"NFKC", NormalForm::kNfkc}, {"NFKD", NormalForm::kNfkd}};
  for (const FormName& row : kForms) {
    if (row.name != type) continue;
    steps.push_back(std::make_unique<FormStep>(row.form));
    return {};
  }
  if (type == "BertNormalizer") return add_bert(node, steps);
  if (type == "Replace") return add_replace(node, steps);
  if (type == "Precompiled") return add_charsmap(node, steps);
  if (type == "Lowercase") {
    steps.push_back(std::make_unique<LowercaseStep>());
  } else if (type == "StripAccents") {
    steps.push_back(std::make_unique<CharacterwiseStep<DropMarks>>());
  } else if (type == "Nmt") {
    steps.push_back(std::make_unique<CharacterwiseStep<Nmt>>());
  } else if (type == "ByteLevel") {
    steps.push_back(std::make_unique<SpellBytesStep>());
  } else if (type == "Prepend" || type == "Append") {
    const std::string_view key = type == "Prepend" ? "prepend" : "append";
    std::string_view added;
    if (node.find(key) == nullptr) return node.missing(key);
    CORBEL_RETURN_IF_ERROR(node.string(key, added));
    const bool before = type == "Prepend";
    steps.push_back(std::make_unique<SurroundStep>(std::string(before ? added : ""), std::string(before ? "" : added)));
  } else if (type == "Strip") {
    bool left = true;
    bool right = true;
    CORBEL_RETURN_IF_ERROR(node.flag("strip_left", left));
    CORBEL_RETURN_IF_ERROR(node.flag("strip_right", right));
    steps.push_back(std::make_unique<StripStep>(left, right));
  } else {
    return Status(Errc::kUnsupported,
                  fmt::format("{}.type: '{}' is not supported", node.place(), detail::printable(type, 64)));
  }
  return {};
}

}  // namespace normal

CORBEL_INLINE Result<Normalizer> Normalizer::from_json(const json::Value& node, std::string_view place) {
  Normalizer made;
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
    const NodeReader reader(*now.node, now.place);
    if (!now.node->is_object()) return Status(Errc::kTypeMismatch, fmt::format("{}: expected an object", now.place));
    std::string_view type;
    CORBEL_RETURN_IF_ERROR(reader.string("type", type));
    if (type.empty()) return reader.missing("type");
    if (type != "Sequence") {
      CORBEL_RETURN_IF_ERROR(normal::add_step(type, reader, made.steps_));
      continue;
    }
    const json::Value* parts = reader.find("normalizers");
    if (parts == nullptr) return reader.missing("normalizers");
    if (!parts->is_array()) return reader.wrong("normalizers", "an array");
    if (seen + pending.size() + parts->items().size() > normal::kMaxSteps) {
      return Status(Errc::kLimitExceeded, fmt::format("{}: more than {} steps", now.place, normal::kMaxSteps));
    }
    for (std::size_t i = parts->items().size(); i-- > 0;) {
      pending.push_back({&parts->items()[i], fmt::format("{}.normalizers[{}]", now.place, i)});
    }
  }
  return made;
}

CORBEL_INLINE Status Normalizer::apply(std::string_view text, std::string& out, std::span<std::size_t> cuts,
                                       std::uint64_t& steps) const {
  out.clear();
  if (steps_.empty()) {
    out.assign(text);
    return {};
  }
  const std::size_t limit = text.size() * kMaxGrowth + (std::size_t{1} << 20);
  std::string before;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (i > 0) {
      before.swap(out);
      out.clear();
      text = before;
    }
    steps += text.size();
    out.reserve(text.size() + text.size() / 8);
    Rewriting rewriting(text, out, cuts);
    CORBEL_RETURN_IF_ERROR(steps_[i]->apply(rewriting, limit, steps));
    rewriting.reached(~std::size_t{0});
    if (out.size() > limit) return normal::too_long(limit);
  }
  return {};
}

CORBEL_INLINE Status Normalizer::apply(std::string_view text, std::string& out) const {
  std::uint64_t steps = 0;
  return apply(text, out, {}, steps);
}

CORBEL_INLINE std::uint64_t Normalizer::memory_bytes() const noexcept {
  std::uint64_t bytes = sizeof(*this) + steps_.capacity() * sizeof(steps_[0]);
  for (const auto& step : steps_) bytes += step->memory_bytes();
  return bytes;
}

}  // namespace text
CORBEL_NAMESPACE_END
