// Definitions of text/decoder.hpp.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/impl/text/json_fields.ipp>
#include <corbel/text/byte_stand_ins.hpp>
#include <corbel/text/decoder.hpp>

#include <algorithm>
#include <fmt/format.h>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text {

inline constexpr std::size_t kMaxDecoderSteps = 64;

CORBEL_INLINE void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty() || text.find(from) == std::string::npos) return;
  std::string out;
  std::size_t begin = 0;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, begin)) {
    out.append(text, begin, at - begin).append(to);
    begin = at + from.size();
  }
  out.append(text, begin);
  text = std::move(out);
}

// The clean-up of English punctuation that published WordPiece and CTC decoders do.
CORBEL_INLINE void clean_up(std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [from, to] : kRules) replace_all(text, from, to);
}

CORBEL_INLINE int byte_of_piece(std::string_view piece) noexcept {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return -1;
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

CORBEL_INLINE Result<Decoder> Decoder::from_json(const json::Value* node, std::string_view path) {
  Decoder decoder;
  if (node == nullptr || node->is_null()) {
    decoder.steps_.push_back({});
    return decoder;
  }
  // Sequences inside sequences, in order, without recursion: the parser has limited their depth.
  std::vector<std::pair<const json::Value*, std::string>> left = {{node, std::string(path)}};
  while (!left.empty()) {
    const auto [value, place] = std::move(left.back());
    left.pop_back();
    if (!value->is_object()) return json_mismatch(place, "object", *value);
    CORBEL_ASSIGN_OR_RETURN(const std::string_view type, json_string(*value, "type", place));
    if (type != "Sequence") {
      CORBEL_RETURN_IF_ERROR(read_step(*value, place, decoder.steps_));
      if (decoder.steps_.size() > kMaxDecoderSteps) {
        return Status(Errc::kLimitExceeded, fmt::format("{}: more than {} decoders", path, kMaxDecoderSteps));
      }
      continue;
    }
    const json::Value* list = value->find("decoders");
    if (list == nullptr) return Status(Errc::kMissingKey, fmt::format("{}.decoders: not in the file", place));
    if (!list->is_array()) return json_mismatch(place + ".decoders", "array", *list);
    for (std::size_t at = list->items().size(); at > 0; --at) {
      left.emplace_back(&list->items()[at - 1], fmt::format("{}.decoders[{}]", place, at - 1));
    }
  }
  bool whole = false;
  for (Step& step : decoder.steps_) {
    step.whole = whole;
    whole = whole || step.kind == Kind::kFuse || step.kind == Kind::kByteLevel;
  }
  return decoder;
}

CORBEL_INLINE Status Decoder::read_step(const json::Value& node, const std::string& path, std::vector<Step>& steps) {
  Step step;
  CORBEL_ASSIGN_OR_RETURN(const std::string_view type, json_string(node, "type", path));
  if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
  } else if (type == "ByteFallback") {
    step.kind = Kind::kByteFallback;
  } else if (type == "Fuse") {
    step.kind = Kind::kFuse;
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    const json::Value* pattern = node.find("pattern");
    if (pattern == nullptr) return Status(Errc::kMissingKey, fmt::format("{}.pattern: not in the file", path));
    if (!pattern->is_object()) return json_mismatch(path + ".pattern", "object", *pattern);
    if (pattern->find("String") == nullptr) {
      return Status(Errc::kUnsupported, fmt::format("{}.pattern: only {{\"String\": ...}} is supported here", path));
    }
    CORBEL_ASSIGN_OR_RETURN(step.from, json_string(*pattern, "String", path + ".pattern"));
    CORBEL_ASSIGN_OR_RETURN(step.to, json_string(node, "content", path));
    if (step.from.empty()) return Status(Errc::kVocabInvalid, fmt::format("{}.pattern: empty", path));
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    static constexpr std::uint64_t kLongest = 1u << 16;
    CORBEL_ASSIGN_OR_RETURN(step.from, json_string_or(node, "content", path, " "));
    CORBEL_ASSIGN_OR_RETURN(step.start, json_uint_or(node, "start", path, 0, kLongest, Errc::kVocabInvalid));
    CORBEL_ASSIGN_OR_RETURN(step.stop, json_uint_or(node, "stop", path, 0, kLongest, Errc::kVocabInvalid));
    if (step.from.empty() || detail::decode_utf8(step.from, 0).length != step.from.size()) {
      return Status(Errc::kVocabInvalid, fmt::format("{}.content: expected one character", path));
    }
  } else if (type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    CORBEL_ASSIGN_OR_RETURN(step.from, json_string_or(node, "replacement", path, "\xE2\x96\x81"));
    CORBEL_ASSIGN_OR_RETURN(const bool add, json_bool_or(node, "add_prefix_space", path, true));
    CORBEL_ASSIGN_OR_RETURN(const std::string_view scheme,
                            json_string_or(node, "prepend_scheme", path, add ? "always" : "never"));
    if (scheme != "always" && scheme != "first" && scheme != "never") {
      return Status(Errc::kBadValue, fmt::format("{}.prepend_scheme: '{}' is none of always, first, never", path,
                                                 detail::printable(scheme, 32)));
    }
    step.flag = scheme != "never";
    if (step.from.empty() || detail::decode_utf8(step.from, 0).length != step.from.size()) {
      return Status(Errc::kVocabInvalid, fmt::format("{}.replacement: expected one character", path));
    }
  } else if (type == "WordPiece") {
    step.kind = Kind::kWordPiece;
    CORBEL_ASSIGN_OR_RETURN(step.from, json_string_or(node, "prefix", path, "##"));
    CORBEL_ASSIGN_OR_RETURN(step.flag, json_bool_or(node, "cleanup", path, true));
  } else if (type == "BPEDecoder") {
    step.kind = Kind::kSuffix;
    CORBEL_ASSIGN_OR_RETURN(step.from, json_string_or(node, "suffix", path, "</w>"));
  } else if (type == "CTC") {
    step.kind = Kind::kCtc;
    CORBEL_ASSIGN_OR_RETURN(step.from, json_string_or(node, "pad_token", path, "<pad>"));
    CORBEL_ASSIGN_OR_RETURN(step.to, json_string_or(node, "word_delimiter_token", path, "|"));
    CORBEL_ASSIGN_OR_RETURN(step.flag, json_bool_or(node, "cleanup", path, true));
  } else {
    return Status(Errc::kUnsupported,
                  fmt::format("{}.type: the decoder '{}' is not supported", path, detail::printable(type, 64)));
  }
  steps.push_back(std::move(step));
  return {};
}

CORBEL_INLINE bool Decoder::has_byte_fallback() const noexcept {
  return std::any_of(steps_.begin(), steps_.end(), [](const Step& step) { return step.kind == Kind::kByteFallback; });
}

CORBEL_INLINE void Decoder::apply(const Step& step, DecodeState::Step& state, std::string& token) {
  const bool first = step.whole || !state.started;  // what Fuse gives is one token
  state.started = true;
  switch (step.kind) {
    case Kind::kJoin:
      if (!first) token.insert(0, 1, ' ');
      break;
    case Kind::kByteLevel: {
      std::string bytes;
      append_behind_stand_ins(token, bytes);
      token = std::move(bytes);
      break;
    }
    case Kind::kReplace:
      replace_all(token, step.from, step.to);
      break;
    case Kind::kByteFallback:  // see run()
    case Kind::kFuse:
      break;
    case Kind::kStrip: {
      if (!step.whole) state = {true, 0, {}};
      std::size_t cut = 0;
      while (state.count < step.start && token.compare(cut, step.from.size(), step.from) == 0) {
        cut += step.from.size();
        ++state.count;
      }
      token.erase(0, cut);
      if (!token.empty()) state.count = step.start;  // what follows is no longer the start
      if (step.stop == 0) break;
      token.insert(0, state.held);
      std::size_t keep = token.size();
      for (std::size_t left = step.stop; left > 0 && keep >= step.from.size() &&
                                         token.compare(keep - step.from.size(), step.from.size(), step.from) == 0;
           --left) {
        keep -= step.from.size();
      }
      state.held.assign(token, keep);
      token.resize(keep);
      break;
    }
    case Kind::kMetaspace:
      replace_all(token, step.from, first && step.flag ? "" : " ");
      break;
    case Kind::kWordPiece:
      if (!first) {
        if (!step.from.empty() && token.compare(0, step.from.size(), step.from) == 0) {
          token.erase(0, step.from.size());
        } else {
          token.insert(0, 1, ' ');
        }
      }
      if (step.flag) clean_up(token);
      break;
    case Kind::kSuffix: {
      if (step.whole) {
        replace_all(token, step.from, "");
        break;
      }
      // A suffix is a space where another token follows, and nothing in the last one: it is held back with what stands
      // behind it in the token.
      std::string out = std::move(state.held);
      replace_all(out, step.from, " ");
      const std::size_t at = step.from.empty() ? std::string::npos : token.find(step.from);
      state.held = at == std::string::npos ? std::string() : token.substr(at);
      token = out.append(token, 0, at);
      break;
    }
    case Kind::kCtc:
      if (!first && state.held == token) {
        token.clear();
        break;
      }
      state.held = token;
      replace_all(token, step.from, "");
      if (step.flag) {
        clean_up(token);
        replace_all(token, step.to, " ");
      }
      break;
  }
}

CORBEL_INLINE void Decoder::append(std::string_view token, DecodeState& state, std::string& out) const {
  if (is_byte_level()) {
    append_behind_stand_ins(token, out);
    return;
  }
  state.steps.resize(steps_.size());
  state.token.assign(token);
  run(0, state.token, state, out);
}

// The steps from `first_step` on. Calls itself only for the text of a byte run, from a later step each time.
CORBEL_INLINE void Decoder::run(std::size_t first_step, std::string& token, DecodeState& state,
                                std::string& out) const {
  for (std::size_t at = first_step; at < steps_.size(); ++at) {
    const Step& step = steps_[at];
    if (step.kind == Kind::kByteFallback && !step.whole) {
      const int byte = byte_of_piece(token);
      if (byte >= 0 && !step.flag) {
        state.steps[at].held += static_cast<char>(byte);
        return;
      }
      if (byte >= 0) token.assign(1, static_cast<char>(byte));
      end_byte_run(at, state, out);
    }
    apply(step, state.steps[at], token);
  }
  out += token;
}

CORBEL_INLINE void Decoder::end_byte_run(std::size_t step, DecodeState& state, std::string& out) const {
  std::string bytes = std::exchange(state.steps[step].held, {});
  if (bytes.empty()) return;
  if (detail::is_utf8(bytes)) {
    run(step + 1, bytes, state, out);
    return;
  }
  for (std::size_t left = bytes.size(); left > 0; --left) {
    std::string replacement = "\xEF\xBF\xBD";
    run(step + 1, replacement, state, out);
  }
}

CORBEL_INLINE void Decoder::finish(DecodeState& state, std::string& out) const {
  for (std::size_t at = 0; at < state.steps.size() && at < steps_.size(); ++at) {
    if (steps_[at].kind == Kind::kByteFallback) end_byte_run(at, state, out);
    if (steps_[at].kind == Kind::kSuffix && !steps_[at].whole && !state.steps[at].held.empty()) {
      std::string rest = std::exchange(state.steps[at].held, {});
      replace_all(rest, steps_[at].from, "");
      run(at + 1, rest, state, out);
    }
  }
}

CORBEL_INLINE void Decoder::keep_bytes() noexcept {
  for (Step& step : steps_) step.flag = step.flag || step.kind == Kind::kByteFallback;
}

}  // namespace text
CORBEL_NAMESPACE_END
