// A pattern to a tree: the first half of Regex::compile().
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/code_point_sets.hpp>
#include <corbel/text/regex.hpp>

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text {

class RegexParser {
 protected:
  explicit RegexParser(std::string_view pattern) : pattern_(pattern) {}

  // The root of the tree in nodes_, whose sets are in regex_; status_ tells of what is wrong.
  std::uint32_t parse() {
    if (pattern_.size() > Regex::kMaxPattern) {
      status_ = Status(Errc::kLimitExceeded,
                       fmt::format("a pattern of {} bytes, at most {} are read", pattern_.size(), Regex::kMaxPattern));
      return 0;
    }
    for (std::size_t at = 0; at < pattern_.size();) {
      const detail::CodePoint point = detail::decode_utf8(pattern_, at);
      if (point.length == 0) {
        status_ = Status(Errc::kBadUtf8, fmt::format("byte {} of the pattern", at));
        return 0;
      }
      at += point.length;
    }
    regex_.word_set_ = add_set(sets::word());
    const std::uint32_t root = alternatives(0);
    if (status_.ok() && at_ < pattern_.size()) fail(Errc::kBadValue, "')' without '('");
    return root;
  }

  using Op = Regex::Op;
  using Assert = Regex::Assert;
  using Mode = Regex::Mode;
  enum class Kind : std::uint8_t { kEmpty, kSet, kSequence, kAlternatives, kRepeat, kLook, kAtomic, kAssert };
  struct Node {
    Kind kind = Kind::kEmpty;
    Mode mode = Mode::kGreedy;
    bool negative = false;
    bool behind = false;
    Assert assertion = Assert::kWord;
    std::uint32_t set = 0;
    std::uint32_t least = 0;
    std::uint32_t most = 0;
    std::uint32_t child = 0;
    std::size_t place = 0;
    std::vector<std::uint32_t> children;
  };
  struct Flags {
    bool any_case = false;
    bool dot_all = false;
  };
  struct Width {
    std::uint64_t least = 0;
    std::uint64_t most = 0;  // kForever: no bound
  };

  void fail(Errc code, std::string_view what) { fail_at(code, what, at_); }
  void fail_at(Errc code, std::string_view what, std::size_t at) {
    if (status_.ok()) {
      status_ =
          Status(code, fmt::format("byte {} of the pattern '{}': {}", at, detail::printable(pattern_, 120), what));
    }
    at_ = pattern_.size();
  }
  bool more() const { return at_ < pattern_.size(); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }
  bool take(std::string_view text) {
    if (pattern_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }
  std::uint32_t take_code_point() {
    const detail::CodePoint point = detail::decode_utf8(pattern_, at_);
    at_ += point.length;
    return point.value;
  }
  std::uint32_t add(Node node) {
    node.place = at_;
    nodes_.push_back(std::move(node));
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }
  std::uint32_t add_set(sets::Ranges ranges) {
    ranges_ += ranges.size();
    if (ranges_ > Regex::kMaxRanges) {
      fail(Errc::kLimitExceeded, fmt::format("more than {} ranges in classes", Regex::kMaxRanges));
      ranges.clear();
    }
    CodePointSet set;
    for (const auto& [first, last] : ranges) {
      for (std::uint32_t value = first; value <= last && value < 128; ++value) {
        set.ascii[value >> 6] |= std::uint64_t{1} << (value & 63);
      }
    }
    set.ranges = std::move(ranges);
    for (std::size_t i = 0; i < regex_.sets_.size(); ++i) {
      if (regex_.sets_[i].ranges == set.ranges) return static_cast<std::uint32_t>(i);
    }
    regex_.sets_.push_back(std::move(set));
    return static_cast<std::uint32_t>(regex_.sets_.size() - 1);
  }
  std::uint32_t set_node(sets::Ranges ranges) {
    Node node;
    node.kind = Kind::kSet;
    node.set = add_set(flags_.any_case ? sets::with_other_case(ranges) : std::move(ranges));
    return add(std::move(node));
  }

  // Alternatives up to ')' or the end.
  std::uint32_t alternatives(std::uint32_t depth) {
    if (depth > Regex::kMaxDepth) {
      fail(Errc::kDepthExceeded, fmt::format("more than {} groups in each other", Regex::kMaxDepth));
      return add({});
    }
    const Flags outer = flags_;
    Node any;
    any.kind = Kind::kAlternatives;
    any.children.push_back(sequence(depth));
    while (take("|")) any.children.push_back(sequence(depth));
    flags_ = outer;
    return any.children.size() == 1 ? any.children[0] : add(std::move(any));
  }

  std::uint32_t sequence(std::uint32_t depth) {
    Node all;
    all.kind = Kind::kSequence;
    while (more() && peek() != '|' && peek() != ')') {
      const std::size_t before = at_;
      // (?i) without ':' reaches to the end of the group, alternatives included.
      if (const std::optional<Flags> flags = bare_flags()) {
        flags_ = *flags;
        all.children.push_back(alternatives_in_place(depth));
        break;
      }
      std::uint32_t item = atom(depth);
      if (!status_.ok()) break;
      for (;;) {
        const std::optional<std::uint32_t> repeated = quantifier(item, before);
        if (!repeated) break;
        item = *repeated;
      }
      all.children.push_back(item);
    }
    return all.children.size() == 1 ? all.children[0] : add(std::move(all));
  }
  std::uint32_t alternatives_in_place(std::uint32_t depth) { return alternatives(depth + 1); }

  std::optional<Flags> bare_flags() {
    if (peek() != '(' || peek(1) != '?') return std::nullopt;
    const std::size_t begin = at_;
    at_ += 2;
    const std::optional<Flags> flags = flag_letters();
    if (flags && take(")")) return flags;
    if (status_.ok()) at_ = begin;
    return std::nullopt;
  }
  // Of i and m (dot matches everything), with '-' before those that are taken away.
  std::optional<Flags> flag_letters() {
    Flags flags = flags_;
    bool on = true;
    const std::size_t begin = at_;
    for (; more() && peek() != ')' && peek() != ':'; ++at_) {
      const char c = peek();
      if (c == '-') {
        on = false;
      } else if (c == 'i') {
        flags.any_case = on;
      } else if (c == 'm') {
        flags.dot_all = on;
      } else if (c == 'x' || c == 'a' || c == 'W' || c == 'D' || c == 'S' || c == 'P' || c == 's' || c == 'u') {
        fail(Errc::kUnsupported, fmt::format("the option '{}' is not supported", c));
        return std::nullopt;
      } else {
        return std::nullopt;
      }
    }
    if (at_ == begin) return std::nullopt;
    return flags;
  }

  std::uint32_t atom(std::uint32_t depth) {
    const char c = peek();
    Node node;
    switch (c) {
      case '(':
        return group(depth);
      case '[':
        ++at_;
        return set_node(character_class(depth));
      case '.':
        ++at_;
        return plain_set(flags_.dot_all ? sets::Ranges{{0, 0x10FFFF}} : sets::complement({{'\n', '\n'}}));
      case '^':
      case '$':
        ++at_;
        node.kind = Kind::kAssert;
        node.assertion = c == '^' ? Assert::kLineStart : Assert::kLineEnd;
        return add(std::move(node));
      case '*':
      case '+':
      case '?':
        fail(Errc::kBadValue, "nothing to repeat");
        return add({});
      case '\\':
        return escape();
      default: {
        const std::uint32_t value = take_code_point();
        return set_node({{value, value}});
      }
    }
  }
  std::uint32_t plain_set(sets::Ranges ranges) {
    Node node;
    node.kind = Kind::kSet;
    node.set = add_set(std::move(ranges));
    return add(std::move(node));
  }

  std::uint32_t group(std::uint32_t depth) {
    const std::size_t begin = at_;
    ++at_;
    Node node;
    const Flags outer = flags_;
    bool plain = true;
    if (take("?")) {
      plain = false;
      if (take("=") || take("!") || take("<=") || take("<!")) {
        node.kind = Kind::kLook;
        node.negative = pattern_[at_ - 1] == '!';
        node.behind = pattern_[at_ - 2] == '<';
      } else if (take(">")) {
        node.kind = Kind::kAtomic;
      } else if (take(":")) {
        plain = true;
      } else if (take("#")) {
        while (more() && peek() != ')') ++at_;
        if (!take(")")) fail_at(Errc::kBadValue, "'(' without ')'", begin);
        return add({});
      } else if (peek() == '<' || (peek() == 'P' && peek(1) == '<')) {
        while (more() && peek() != '>') ++at_;
        if (!take(">")) fail_at(Errc::kBadValue, "a group name without '>'", begin);
        plain = true;
      } else if (const std::optional<Flags> flags = flag_letters(); flags && take(":")) {
        flags_ = *flags;
        plain = true;
      } else {
        fail_at(Errc::kUnsupported, "this kind of group is not supported", begin);
        return add({});
      }
    }
    const std::uint32_t body = alternatives(depth + 1);
    flags_ = outer;
    if (!take(")")) {
      fail_at(Errc::kBadValue, "'(' without ')'", begin);
      return add({});
    }
    if (plain) return body;
    node.child = body;
    if (node.behind) {
      const Width width = width_of(body);
      if (width.most > 255) fail_at(Errc::kUnsupported, "a look behind without a small bound", begin);
      node.least = static_cast<std::uint32_t>(width.least);
      node.most = static_cast<std::uint32_t>(width.most);
    }
    return add(std::move(node));
  }

  // Code points that a tree can cover; trees are no deeper than kMaxDepth groups and what quantifiers add.
  Width width_of(std::uint32_t index) const { return widths_of(index, 0); }
  Width widths_of(std::uint32_t index, std::uint32_t depth) const {
    static constexpr std::uint64_t kForever = Regex::kForever;
    const Node& node = nodes_[index];
    if (depth > 4 * Regex::kMaxDepth) return {0, kForever};
    const auto capped = [](std::uint64_t value) { return std::min(value, kForever); };
    Width width;
    switch (node.kind) {
      case Kind::kSet:
        return {1, 1};
      case Kind::kSequence:
        for (const std::uint32_t child : node.children) {
          const Width part = widths_of(child, depth + 1);
          width = {capped(width.least + part.least), capped(width.most + part.most)};
        }
        return width;
      case Kind::kAlternatives:
        width.least = kForever;
        for (const std::uint32_t child : node.children) {
          const Width part = widths_of(child, depth + 1);
          width = {std::min(width.least, part.least), std::max(width.most, part.most)};
        }
        return width;
      case Kind::kRepeat: {
        const Width part = widths_of(node.child, depth + 1);
        return {capped(part.least * node.least),
                node.most == Regex::kForever ? kForever : capped(part.most * node.most)};
      }
      case Kind::kAtomic:
        return widths_of(node.child, depth + 1);
      default:
        return width;
    }
  }

  std::optional<std::uint32_t> quantifier(std::uint32_t item, std::size_t begin) {
    const std::size_t place = at_;
    std::uint32_t least = 0;
    std::uint32_t most = Regex::kForever;
    bool braces = false;
    if (take("*")) {
    } else if (take("+")) {
      least = 1;
    } else if (take("?")) {
      most = 1;
    } else if (peek() == '{') {
      if (!interval(least, most)) return std::nullopt;
      braces = true;
    } else {
      return std::nullopt;
    }
    if (!status_.ok()) return std::nullopt;
    if (++quantifiers_in_row_ > Regex::kMaxDepth && place == last_quantifier_end_) {
      fail(Errc::kDepthExceeded, "too many quantifiers in a row");
      return std::nullopt;
    }
    if (place != last_quantifier_end_) quantifiers_in_row_ = 1;
    Node node;
    node.kind = Kind::kRepeat;
    node.least = least;
    node.most = most;
    node.child = item;
    if (peek() == '?' && !(braces && least == most)) {
      ++at_;
      node.mode = Mode::kLazy;
    } else if (peek() == '+' && !braces) {
      ++at_;
      node.mode = Mode::kPossessive;
    }
    last_quantifier_end_ = at_;
    (void)begin;
    return add(std::move(node));
  }

  // {n} {n,} {,n} {n,m}; anything else is text.
  bool interval(std::uint32_t& least, std::uint32_t& most) {
    const std::size_t begin = at_;
    ++at_;
    const auto number = [&](std::uint32_t& value) {
      const std::size_t first = at_;
      std::uint64_t read = 0;
      for (; peek() >= '0' && peek() <= '9'; ++at_) {
        read = std::min<std::uint64_t>(read * 10 + static_cast<std::uint64_t>(peek() - '0'), 1u << 30);
      }
      if (at_ > first) value = static_cast<std::uint32_t>(read);
      return at_ > first;
    };
    const bool low = number(least);
    bool high = false;
    const bool comma = take(",");
    if (comma) high = number(most);
    if ((!low && !high) || !take("}")) {
      at_ = begin;
      return false;
    }
    if (!comma) most = least;
    if (least > Regex::kMaxRepeat || (most != Regex::kForever && most > Regex::kMaxRepeat)) {
      fail_at(Errc::kLimitExceeded, fmt::format("repeated more than {} times", Regex::kMaxRepeat), begin);
    } else if (least > most) {
      fail_at(Errc::kUnsupported, "a repeat whose bounds are the wrong way round", begin);
    }
    return true;
  }

  std::uint32_t escape() {
    const std::size_t begin = at_;
    ++at_;
    if (!more()) {
      fail_at(Errc::kBadValue, "'\\' at the end", begin);
      return add({});
    }
    Node node;
    node.kind = Kind::kAssert;
    const char c = peek();
    switch (c) {
      case 'A':
        node.assertion = Assert::kTextStart;
        break;
      case 'z':
        node.assertion = Assert::kTextEnd;
        break;
      case 'Z':
        node.assertion = Assert::kLastLine;
        break;
      case 'b':
        node.assertion = Assert::kWord;
        break;
      case 'B':
        node.assertion = Assert::kNotWord;
        break;
      case 'R': {
        ++at_;
        Node line;
        line.kind = Kind::kSequence;
        line.children = {plain_set({{'\r', '\r'}}), plain_set({{'\n', '\n'}})};
        Node any;
        any.kind = Kind::kAlternatives;
        any.children = {add(std::move(line)), plain_set({{'\n', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}})};
        Node atomic;
        atomic.kind = Kind::kAtomic;
        atomic.child = add(std::move(any));
        return add(std::move(atomic));
      }
      case 'N':
        ++at_;
        return plain_set(sets::complement({{'\n', '\n'}}));
      case 'O':
        ++at_;
        return plain_set({{0, 0x10FFFF}});
      case 'G':
      case 'K':
      case 'X':
      case 'y':
      case 'Y':
      case 'k':
      case 'g':
        fail_at(Errc::kUnsupported, fmt::format("'\\{}' is not supported", c), begin);
        return add({});
      default:
        if (c >= '1' && c <= '9') {
          fail_at(Errc::kUnsupported, "back-references are not supported", begin);
          return add({});
        }
        return set_node(escaped_set());
    }
    ++at_;
    return add(std::move(node));
  }

  // What an escape outside or inside of a class stands for; '\' is behind.
  sets::Ranges escaped_set() {
    const std::size_t begin = at_ - 1;
    const char c = peek();
    const auto one = [](std::uint32_t value) { return sets::Ranges{{value, value}}; };
    const auto maybe = [](bool negative, sets::Ranges ranges) {
      return negative ? sets::complement(ranges) : std::move(ranges);
    };
    switch (c) {
      case 'd':
      case 'D':
        ++at_;
        return maybe(c == 'D', *sets::property("Nd"));
      case 's':
      case 'S':
        ++at_;
        return maybe(c == 'S', sets::space());
      case 'w':
      case 'W':
        ++at_;
        return maybe(c == 'W', sets::word());
      case 'h':
      case 'H':
        ++at_;
        return maybe(c == 'H', {{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
      case 'n':
        ++at_;
        return one('\n');
      case 't':
        ++at_;
        return one('\t');
      case 'r':
        ++at_;
        return one('\r');
      case 'f':
        ++at_;
        return one('\f');
      case 'v':
        ++at_;
        return one('\v');
      case 'a':
        ++at_;
        return one('\a');
      case 'e':
        ++at_;
        return one(0x1B);
      case 'x':
        ++at_;
        if (take("{")) {
          const std::uint32_t value = hexadecimal(8);
          if (!take("}")) fail_at(Errc::kBadValue, "'\\x{' without '}'", begin);
          return one(checked(value, begin));
        }
        return one(checked(hexadecimal(2), begin));
      case 'u':
        ++at_;
        return one(checked(hexadecimal(4), begin));
      case '0': {
        std::uint32_t value = 0;
        for (int digits = 0; digits < 3 && peek() >= '0' && peek() <= '7'; ++digits, ++at_) {
          value = value * 8 + static_cast<std::uint32_t>(peek() - '0');
        }
        return one(value);
      }
      case 'p':
      case 'P': {
        ++at_;
        bool negative = c == 'P';
        const std::size_t end = pattern_.find('}', at_);
        if (!take("{") || end == std::string_view::npos) {
          fail_at(Errc::kBadValue, "a property without '{...}'", begin);
          return {};
        }
        if (take("^")) negative = !negative;
        const std::string_view name = pattern_.substr(at_, end - at_);
        const std::optional<sets::Ranges> ranges = sets::property(name);
        if (!ranges) {
          fail_at(Errc::kUnsupported, fmt::format("the property '{}' is not known", detail::printable(name, 40)),
                  begin);
          return {};
        }
        at_ = end + 1;
        return maybe(negative, *ranges);
      }
      default: {
        if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
          if (c == 'C' || c == 'M' || c == 'c') {
            fail_at(Errc::kUnsupported, fmt::format("'\\{}' is not supported", c), begin);
            return {};
          }
        }
        const std::uint32_t value = take_code_point();
        return one(value);
      }
    }
  }
  std::uint32_t hexadecimal(int most) {
    std::uint32_t value = 0;
    for (int digits = 0; digits < most; ++digits, ++at_) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) break;
      value = value * 16 + static_cast<std::uint32_t>(digit);
    }
    return value;
  }
  std::uint32_t checked(std::uint32_t value, std::size_t begin) {
    if (value <= 0x10FFFF) return value;
    fail_at(Errc::kBadValue, "a code point above 10FFFF", begin);
    return 0;
  }

  // '[' is behind. Unions, ranges, classes in classes, and && (which binds loosest).
  sets::Ranges character_class(std::uint32_t depth) {
    const std::size_t begin = at_ - 1;
    if (depth > Regex::kMaxDepth) {
      fail(Errc::kDepthExceeded, fmt::format("more than {} classes in each other", Regex::kMaxDepth));
      return {};
    }
    const bool negative = take("^");
    sets::Ranges now;
    std::optional<sets::Ranges> before;  // what stands before &&
    bool first = true;
    for (;; first = false) {
      if (!more()) {
        fail_at(Errc::kBadValue, "'[' without ']'", begin);
        return {};
      }
      if (peek() == ']' && !first) break;
      if (take("&&")) {
        sets::tidy(now);
        before = before ? sets::intersection(*before, now) : std::move(now);
        now.clear();
        continue;
      }
      sets::Ranges item;
      bool single = false;
      if (pattern_.substr(at_, 2) == "[:") {
        if (!posix_class(item)) item = {{static_cast<std::uint32_t>('['), '['}};
      } else if (take("[")) {
        item = character_class(depth + 1);
      } else if (take("\\")) {
        if (take("b")) {
          item = {{8, 8}};
          single = true;
        } else if (take("R") || take("X") || !more()) {
          fail_at(Errc::kUnsupported, "an escape that is no set of characters, in a class", begin);
        } else {
          const char letter = peek();
          item = escaped_set();
          single = std::string_view("dDsSwWhHpP").find(letter) == std::string_view::npos;
        }
      } else {
        const std::uint32_t value = take_code_point();
        item = {{value, value}};
        single = true;
      }
      if (!status_.ok()) return {};
      if (single && peek() == '-' && peek(1) != ']' && peek(1) != '\0' && !(peek(1) == '&' && peek(2) == '&')) {
        const std::size_t dash = at_;
        ++at_;
        std::uint32_t last = 0;
        if (take("\\")) {
          const sets::Ranges escaped = more() ? escaped_set() : sets::Ranges{};
          if (escaped.size() != 1 || escaped[0].first != escaped[0].second) {
            fail_at(Errc::kBadValue, "a range that ends in a set", dash);
            return {};
          }
          last = escaped[0].first;
        } else if (peek() == '[') {
          fail_at(Errc::kUnsupported, "a range that ends in a class", dash);
          return {};
        } else {
          last = take_code_point();
        }
        if (last < item[0].first) {
          fail_at(Errc::kBadValue, "a range that ends before it begins", dash);
          return {};
        }
        item[0].second = last;
      }
      // Under (?i) both cases are in a class before it is negated.
      if (flags_.any_case) item = sets::with_other_case(item);
      now.insert(now.end(), item.begin(), item.end());
      if (now.size() > Regex::kMaxRanges) {
        sets::tidy(now);
        if (now.size() > Regex::kMaxRanges) fail_at(Errc::kLimitExceeded, "a class with too many ranges", begin);
      }
    }
    ++at_;
    sets::tidy(now);
    if (before) now = sets::intersection(*before, now);
    return negative ? sets::complement(now) : now;
  }

  bool posix_class(sets::Ranges& item) {
    const std::size_t end = pattern_.find(":]", at_);
    const std::size_t begin = at_;
    if (end == std::string_view::npos || end > at_ + 20) {
      ++at_;
      return false;
    }
    at_ += 2;
    const bool negative = take("^");
    const std::optional<sets::Ranges> ranges = sets::property(pattern_.substr(at_, end - at_));
    if (!ranges) {
      at_ = begin + 1;
      return false;
    }
    item = negative ? sets::complement(*ranges) : *ranges;
    at_ = end + 2;
    return true;
  }

  Status status_;
  std::vector<Node> nodes_;
  Regex regex_;

 private:
  std::string_view pattern_;
  std::size_t at_ = 0;
  Flags flags_;
  std::size_t ranges_ = 0;
  std::uint32_t quantifiers_in_row_ = 0;
  std::size_t last_quantifier_end_ = ~std::size_t{0};
};

}  // namespace text
CORBEL_NAMESPACE_END
