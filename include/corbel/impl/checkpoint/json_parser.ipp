// The parser of json.hpp. It keeps its own stack, so depth costs heap, never call stack.
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/impl/checkpoint/json_lexer.ipp>

#include <algorithm>
#include <numeric>
#include <optional>

CORBEL_NAMESPACE_BEGIN
namespace json {
namespace detail {

class Parser : private Lexer {
 public:
  Parser(std::string_view text, const ParseOptions& options) : Lexer(text), options_(options) {}

  Result<Value> parse() {
    if (text_.size() > options_.max_bytes) {
      return Status(Errc::kLimitExceeded, "JSON text of " + std::to_string(text_.size()) + " bytes, the limit is " +
                                              std::to_string(options_.max_bytes));
    }
    for (;;) {
      CORBEL_ASSIGN_OR_RETURN(std::optional<Value> value, begin_value());
      while (value) {  // a complete value: hand it to what is around it
        if (open_.empty()) {
          skip_space();
          if (at_ == text_.size()) return *std::move(value);
          return unexpected("the end");
        }
        CORBEL_ASSIGN_OR_RETURN(value, add(*std::move(value)));
      }
    }
  }

 private:
  // An array or object whose end has not come yet.
  struct Open {
    bool object = false;
    Value::Array items;
    Value::Object members;
    corbel::detail::ChunkedVector<std::uint64_t> key_offsets;
  };

  // Reads a scalar or an empty container, which are complete; or opens a container up to its first element.
  Result<std::optional<Value>> begin_value() {
    skip_space();
    switch (peek()) {
      case '{':
        return begin_container(true);
      case '[':
        return begin_container(false);
      default:
        return scalar();
    }
  }

  Result<std::optional<Value>> begin_container(bool object) {
    if (open_.size() >= options_.max_depth) {
      return error_at(Errc::kDepthExceeded, at_, "nested deeper than " + std::to_string(options_.max_depth));
    }
    ++at_;
    skip_space();
    if (peek() == (object ? '}' : ']')) {
      ++at_;
      return std::optional(object ? Value::object() : Value::array());
    }
    open_.push_back({.object = object, .items = {}, .members = {}, .key_offsets = {}});
    if (object) CORBEL_RETURN_IF_ERROR(key());
    return std::optional<Value>();
  }

  // Adds a value to the innermost container; gives the container back where it ends here.
  Result<std::optional<Value>> add(Value value) {
    Open& top = open_.back();
    if (top.object) {
      top.members.back().second = std::move(value);
    } else {
      top.items.push_back(std::move(value));
    }
    skip_space();
    if (peek() == ',') {
      ++at_;
      if (top.object) CORBEL_RETURN_IF_ERROR(key());
      return std::optional<Value>();
    }
    if (peek() != (top.object ? '}' : ']')) return unexpected(top.object ? "',' or '}'" : "',' or ']'");
    ++at_;
    if (top.object) CORBEL_RETURN_IF_ERROR(check_keys(top));
    std::optional<Value> done(top.object ? Value::object(std::move(top.members)) : Value::array(std::move(top.items)));
    open_.pop_back();
    return done;
  }

  // The key of the next member, and the colon.
  Status key() {
    skip_space();
    const std::size_t start = at_;
    CORBEL_ASSIGN_OR_RETURN(std::string name, key_text());
    open_.back().key_offsets.push_back(start);
    open_.back().members.emplace_back(std::move(name), Value());
    return {};
  }

  // Sorting finds equal keys; no choice of keys makes it slow.
  static Status check_keys(const Open& object) {
    if (object.members.size() < 2) return {};
    const auto name = [&](std::size_t index) -> const std::string& { return object.members[index].first; };
    std::vector<std::uint32_t> order(object.members.size());  // the text is shorter than 2^32 bytes
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const int sign = name(a).compare(name(b));
      return sign != 0 ? sign < 0 : a < b;
    });
    const auto twice = std::adjacent_find(order.begin(), order.end(),
                                          [&](std::size_t a, std::size_t b) { return name(a) == name(b); });
    if (twice == order.end()) return {};
    return error_at(Errc::kDuplicate, object.key_offsets[twice[1]],
                    "the key \"" + printable(name(*twice), 100) + "\" appeared before in this object");
  }

  const ParseOptions& options_;
  std::vector<Open> open_;
};

}  // namespace detail

}  // namespace json
CORBEL_NAMESPACE_END
