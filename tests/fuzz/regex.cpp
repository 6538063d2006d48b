// Target regex: the engine for patterns of tokenizer.json against a plain backtracking matcher, on short texts, and any
// bytes as a pattern.
#include <corbel/detail/utf8.hpp>
#include <corbel/text/regex.hpp>
#include <corbel/text/unicode.hpp>

#include <functional>

#include "fuzz/fuzz.hpp"

using namespace corbel;
using namespace corbel_fuzz;

namespace {

struct Node {
  enum class Kind { kSet, kSequence, kChoice, kRepeat, kLook, kLineStart, kLineEnd } kind = Kind::kSequence;
  const char* text = "";                      // of a set
  bool (*contains)(std::uint32_t) = nullptr;  // of a set
  std::vector<Node> parts;
  std::size_t least = 0, most = 0;  // of a repeat
  bool lazy = false, negative = false;
};

constexpr std::size_t kForever = 1000000;

bool is_space(std::uint32_t c) { return text::is_space(text::char_class(c)); }
bool is_letter(std::uint32_t c) { return text::is_letter(text::char_class(c)); }
bool is_number(std::uint32_t c) { return text::is_number(text::char_class(c)); }

struct SetRow {
  const char* text;
  bool (*contains)(std::uint32_t);
};
constexpr SetRow kSets[] = {
    {"a", [](std::uint32_t c) { return c == 'a'; }},
    {"b", [](std::uint32_t c) { return c == 'b'; }},
    {"1", [](std::uint32_t c) { return c == '1'; }},
    {" ", [](std::uint32_t c) { return c == ' '; }},
    {"\\n", [](std::uint32_t c) { return c == '\n'; }},
    {"\xC3\xA4", [](std::uint32_t c) { return c == 0xE4; }},
    {".", [](std::uint32_t c) { return c != '\n'; }},
    {"[ab]", [](std::uint32_t c) { return c == 'a' || c == 'b'; }},
    {"[^a\\r\\n]", [](std::uint32_t c) { return c != 'a' && c != '\r' && c != '\n'; }},
    {"[0-9b-d]", [](std::uint32_t c) { return (c >= '0' && c <= '9') || (c >= 'b' && c <= 'd'); }},
    {"\\s", is_space},
    {"\\S", [](std::uint32_t c) { return !is_space(c); }},
    {"\\p{L}", is_letter},
    {"\\p{N}", is_number},
    {"[^\\s\\p{L}\\p{N}]", [](std::uint32_t c) { return !is_space(c) && !is_letter(c) && !is_number(c); }},
};

/// Builds a pattern from bytes, and its text.
class Builder {
 public:
  explicit Builder(Input& input) : input_(input) {}
  Node choice(int depth) {
    Node node;
    node.kind = Node::Kind::kChoice;
    const std::uint32_t count = 1 + (depth > 3 ? 0 : input_.below(4) % 3);
    for (std::uint32_t i = 0; i < count; ++i) {
      if (i > 0) pattern += '|';
      node.parts.push_back(sequence(depth));
    }
    return node;
  }
  std::string pattern;

 private:
  Node sequence(int depth) {
    Node node;
    const std::uint32_t count = input_.below(4);
    for (std::uint32_t i = 0; i < count && pattern.size() < 120; ++i) node.parts.push_back(item(depth));
    return node;
  }
  Node item(int depth) {
    const std::uint32_t what = input_.below(24);
    if (what >= 22 && depth <= 3) {
      Node node;
      node.kind = Node::Kind::kLook;
      node.negative = what == 23;
      pattern += node.negative ? "(?!" : "(?=";
      node.parts.push_back(choice(depth + 1));
      pattern += ')';
      return node;
    }
    if (what == 21) return anchor("^", Node::Kind::kLineStart);
    if (what == 20) return anchor("$", Node::Kind::kLineEnd);
    Node node;
    if (what >= 15 && depth <= 3) {
      pattern += what == 15 ? "(" : "(?:";
      node = choice(depth + 1);
      pattern += ')';
    } else {
      const SetRow& set = kSets[what % std::size(kSets)];
      node.kind = Node::Kind::kSet;
      node.text = set.text;
      node.contains = set.contains;
      pattern += set.text;
    }
    return repeated(std::move(node));
  }
  Node anchor(const char* text, Node::Kind kind) {
    Node node;
    node.kind = kind;
    pattern += text;
    return node;
  }
  Node repeated(Node inner) {
    Node node;
    node.kind = Node::Kind::kRepeat;
    switch (input_.below(8)) {
      case 0:
        node.least = 0, node.most = kForever;
        pattern += '*';
        break;
      case 1:
        node.least = 1, node.most = kForever;
        pattern += '+';
        break;
      case 2:
        node.least = 0, node.most = 1;
        pattern += '?';
        break;
      case 3:
        node.least = input_.below(3), node.most = node.least + 1 + input_.below(2);
        pattern += "{" + std::to_string(node.least) + "," + std::to_string(node.most) + "}";
        break;
      default:
        return inner;
    }
    if (input_.below(4) == 0) {
      node.lazy = true;
      pattern += '?';
    }
    node.parts.push_back(std::move(inner));
    return node;
  }
  Input& input_;
};

/// Tries every way in order of preference.
class Backtracker {
 public:
  using Next = std::function<bool(std::size_t)>;
  explicit Backtracker(std::string_view text) : text_(text) {}
  bool gave_up = false;

  std::size_t match(const Node& node, std::size_t at) {
    std::size_t end = text_.npos;
    try_node(node, at, [&](std::size_t to) {
      end = to;
      return true;
    });
    return end;
  }

 private:
  bool try_node(const Node& node, std::size_t at, const Next& next) {
    if (gave_up || ++steps_ > 3000) {
      gave_up = true;
      return false;
    }
    switch (node.kind) {
      case Node::Kind::kSet: {
        if (at >= text_.size()) return false;
        const detail::CodePoint point = detail::decode_utf8(text_, at);
        return node.contains(point.value) && next(at + point.length);
      }
      case Node::Kind::kSequence:
        return try_sequence(node, 0, at, next);
      case Node::Kind::kChoice:
        for (const Node& part : node.parts)
          if (try_node(part, at, next)) return true;
        return false;
      case Node::Kind::kRepeat:
        return try_repeat(node, 0, at, next);
      case Node::Kind::kLook:
        return (match(node.parts[0], at) != text_.npos) != node.negative && !gave_up && next(at);
      case Node::Kind::kLineStart:
        return (at == 0 || (text_[at - 1] == '\n' && at < text_.size())) && next(at);
      case Node::Kind::kLineEnd:
        return (at == text_.size() || text_[at] == '\n') && next(at);
    }
    return false;
  }
  bool try_sequence(const Node& node, std::size_t index, std::size_t at, const Next& next) {
    if (index == node.parts.size()) return next(at);
    return try_node(node.parts[index], at, [&](std::size_t to) { return try_sequence(node, index + 1, to, next); });
  }
  bool try_repeat(const Node& node, std::size_t count, std::size_t at, const Next& next) {
    if (gave_up || ++steps_ > 3000) {
      gave_up = true;
      return false;
    }
    const auto more = [&] {
      return count < node.most && try_node(node.parts[0], at, [&](std::size_t to) {
               // A round that took nothing ends the loop; '+' is a round and a loop.
               if (to == at && (count >= node.least || node.most != kForever)) return next(to);
               return try_repeat(node, count + 1, to, next);
             });
    };
    if (count < node.least) return more();
    if (node.lazy) return next(at) || more();
    return more() || next(at);
  }

  std::string_view text_;
  std::size_t steps_ = 0;
};

using Matches = std::vector<std::pair<std::size_t, std::size_t>>;

bool slow_matches(const Node& node, std::string_view text, Matches& out) {
  std::size_t last_end = text.npos;
  for (std::size_t at = 0; at <= text.size();) {
    Backtracker matcher(text);
    const std::size_t end = matcher.match(node, at);
    if (matcher.gave_up) return false;
    const std::size_t step = at < text.size() ? detail::decode_utf8(text, at).length : 1;
    if (end != text.npos && !(end == at && at == last_end)) out.emplace_back(at, end);
    if (end != text.npos) last_end = end;
    at = end == text.npos || end == at ? at + step : end;
  }
  return true;
}

Result<Matches> matches(std::string_view pattern, std::string_view text) {
  CORBEL_ASSIGN_OR_RETURN(const text::Regex regex, text::Regex::compile(pattern));
  text::RegexMatcher matcher(regex);
  Matches out;
  for (int round = 0; round < 2; ++round) {  // the second time with memory that was used
    matcher.reset(text);
    const std::uint64_t before = matcher.steps();
    Matches found;
    std::size_t end = 0;
    for (text::RegexMatcher::Match match;;) {
      CORBEL_ASSIGN_OR_RETURN(const bool more, matcher.next(match));
      if (!more) break;
      FUZZ_CHECK(match.begin >= end && match.end >= match.begin && match.end <= text.size(), pattern);
      end = match.end;
      found.emplace_back(match.begin, match.end);
    }
    const std::uint64_t limit = text::RegexMatcher::kFreeSteps + text::RegexMatcher::kStepsPerByte * text.size();
    FUZZ_CHECK(matcher.steps() - before <= limit + 1024, pattern);
    FUZZ_CHECK(round == 0 || found == out, pattern);
    out = std::move(found);
  }
  return out;
}

}  // namespace

// The first byte chooses: even, a pattern built from the bytes and compared; odd, the bytes up to a NUL as a pattern.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  if (input.byte() % 2 == 1) {
    const std::string_view rest = input.rest();
    const std::size_t end = rest.find('\0');
    std::string text(end == rest.npos ? "Hello hello, world's 12345\n\n  aaaaaaaaaaaaaaaaaaaa \xC3\xA4\xE4\xB8\xAD"
                                      : rest.substr(end + 1));
    if (!detail::is_utf8(text)) return 0;
    text.resize(std::min<std::size_t>(text.size(), 2000));
    if (!detail::is_utf8(text)) return 0;
    const auto found = matches(rest.substr(0, end), text);
    check_status(found.status());
    return 0;
  }
  const std::uint32_t length = input.below(24);
  std::string text;
  for (std::uint32_t i = 0; i < length; ++i) {
    static constexpr const char* kLetters[] = {"a", "b", "a", "1", " ", "\n", "\xC3\xA4", ",", "\r", "c"};
    text += kLetters[input.below(static_cast<std::uint32_t>(std::size(kLetters)))];
  }
  Builder builder(input);
  const Node node = builder.choice(0);
  const std::string& pattern = builder.pattern;
  const auto fast = matches(pattern, text);
  check_status(fast.status());
  FUZZ_CHECK(fast.ok() || fast.status().code() == Errc::kLimitExceeded || fast.status().code() == Errc::kUnsupported,
             pattern + ": " + std::string(fast.status().message()));
  Matches slow;
  if (!fast.ok() || !slow_matches(node, text, slow)) return 0;
  if (slow != *fast) {
    std::string shown = pattern + " on " + detail::printable(text, 200) + ": expected";
    for (const auto& [begin, end] : slow) shown += " " + std::to_string(begin) + "-" + std::to_string(end);
    shown += ", found";
    for (const auto& [begin, end] : *fast) shown += " " + std::to_string(begin) + "-" + std::to_string(end);
    FUZZ_CHECK(slow == *fast, shown);
  }
  return 0;
}
