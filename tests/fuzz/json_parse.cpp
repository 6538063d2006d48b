// Target json_parse: our JSON reader against nlohmann-json, and what we write against both readers.
#include <corbel/checkpoint/json.hpp>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "fuzz/fuzz.hpp"
#include "fuzz/mutator.hpp"
#include "support/json_equal.hpp"

CORBEL_FUZZ_MUTATOR(json)

using namespace corbel;
using namespace corbel_fuzz;
using corbel_test::Doubles;
using corbel_test::json_equal;

namespace {

constexpr std::uint32_t kDepth = 24;

// What the other reader says, and where ours is stricter by its documentation: duplicate keys and depth.
class Judge : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool duplicate = false;
  std::size_t deepest = 0;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool key(string_t& text) override {
    if (!keys_.back().insert(text).second) duplicate = true;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool open() {
    keys_.emplace_back();
    deepest = std::max(deepest, keys_.size());
    return true;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = text_of(data, size);
  const AllocationBound bound((std::size_t{1} << 20) + 64 * size);
  const auto ours = json::parse(text, {.max_depth = kDepth});
  check_status(ours.status());
  // The other reader takes a NUL for the end and skips a byte order mark; both are errors in RFC 8259.
  if (text.find('\0') != text.npos || text.substr(0, 3) == "\xEF\xBB\xBF") {
    FUZZ_CHECK(!ours.ok(), text);
    return 0;
  }
  Judge judge;
  const bool sound = nlohmann::json::sax_parse(text.begin(), text.end(), &judge);
  const bool expected = sound && !judge.duplicate && judge.deepest <= kDepth;
  FUZZ_CHECK(ours.ok() == expected, ours.status().message());
  if (!ours.ok()) {
    const Errc code = ours.status().code();
    FUZZ_CHECK(ours.status().message().substr(0, 10) == "JSON byte ", ours.status().message());
    FUZZ_CHECK(code != Errc::kDuplicate || judge.duplicate, ours.status().message());
    FUZZ_CHECK(code != Errc::kDepthExceeded || judge.deepest > kDepth, ours.status().message());
    FUZZ_CHECK(
        code == Errc::kBadJson || code == Errc::kBadUtf8 || code == Errc::kDuplicate || code == Errc::kDepthExceeded,
        ours.status().message());
    return 0;
  }
  FUZZ_CHECK(json_equal(*ours, nlohmann::json::parse(text), Doubles::kByValue), text);
  const std::string written = json::write(*ours);
  const auto again = json::parse(written, {.max_depth = kDepth});
  FUZZ_CHECK(again.ok() && json::write(*again) == written, written);
  FUZZ_CHECK(json_equal(*ours, nlohmann::json::parse(written), Doubles::kByValue), written);
  const json::Value copy = *ours;
  FUZZ_CHECK(json::write(copy) == written, written);
  return 0;
}
