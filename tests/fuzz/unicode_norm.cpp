// Target unicode_norm: the normalization forms against the algorithm of UAX 15 written plainly, the other normalizers
// against what they promise, and the scanners of published patterns against the regular expression engine.
#include <corbel/detail/utf8.hpp>
#include <corbel/text/normalization.hpp>
#include <corbel/text/normalization_age.hpp>
#include <corbel/text/normalization_tables.hpp>
#include <corbel/text/normalizer.hpp>
#include <corbel/text/pretokenizer.hpp>
#include <corbel/text/word_cutter.hpp>

#include <map>

#include "fuzz/fuzz.hpp"

using namespace corbel;
using namespace corbel_fuzz;
using text::NormalForm;

namespace {

using CodePoints = std::vector<std::uint32_t>;

CodePoints code_points(std::string_view text) {
  CodePoints out;
  for (std::size_t at = 0; at < text.size();) {
    const detail::CodePoint point = detail::decode_utf8(text, at);
    out.push_back(point.value);
    at += point.length;
  }
  return out;
}

/// The tables as maps, without the short cuts of the library.
struct Tables {
  std::map<std::uint32_t, std::uint32_t> classes;
  std::map<std::uint32_t, CodePoints> canonical, compatible;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> pairs;

  Tables() {
    for (std::size_t i = 0; i < std::size(text::kCombiningRuns); ++i) {
      const std::uint32_t first = text::kCombiningRuns[i] >> 8, value = text::kCombiningRuns[i] & 0xFF;
      const std::uint32_t end = i + 1 < std::size(text::kCombiningRuns) ? text::kCombiningRuns[i + 1] >> 8 : first + 1;
      for (std::uint32_t point = first; value != 0 && point < end; ++point) classes[point] = value;
    }
    for (std::size_t i = 0; i < std::size(text::kDecomposed); ++i) {
      const auto parts = [](std::uint32_t entry) {
        CodePoints out;
        for (std::uint32_t k = 0; k < (entry >> 14 & 31); ++k)
          out.push_back(text::kDecompositions[(entry & 0x3FFF) + k]);
        return out;
      };
      canonical[text::kDecomposed[i]] = parts(static_cast<std::uint32_t>(text::kDecomposition[i]));
      compatible[text::kDecomposed[i]] = parts(static_cast<std::uint32_t>(text::kDecomposition[i] >> 32));
    }
    for (std::size_t i = 0; i < std::size(text::kPairs); ++i)
      pairs[{static_cast<std::uint32_t>(text::kPairs[i] >> 21),
             static_cast<std::uint32_t>(text::kPairs[i] & 0x1FFFFF)}] = text::kComposed[i];
    for (const auto& range : text::kAfterUnicode9) {
      for (std::uint32_t point = range.first; point <= range.last; ++point) {
        classes.erase(point);
        canonical.erase(point);
        compatible.erase(point);
        std::erase_if(pairs, [point](const auto& pair) { return pair.second == point; });
      }
    }
  }
  std::uint32_t class_of(std::uint32_t point) const {
    const auto found = classes.find(point);
    return found == classes.end() ? 0 : found->second;
  }
};

std::string slow_form(NormalForm form, std::string_view text) {
  static const Tables tables;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  CodePoints all;
  for (const std::uint32_t point : code_points(text)) {
    const auto& map = compatible ? tables.compatible : tables.canonical;
    const auto found = map.find(point);
    if (point >= 0xAC00 && point <= 0xD7A3) {
      const std::uint32_t index = point - 0xAC00;
      all.insert(all.end(), {0x1100 + index / 588, 0x1161 + index % 588 / 28});
      if (index % 28 != 0) all.push_back(0x11A7 + index % 28);
    } else if (found != map.end() && !found->second.empty()) {
      all.insert(all.end(), found->second.begin(), found->second.end());
    } else {
      all.push_back(point);
    }
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i + 1 < all.size(); ++i) {
      const std::uint32_t left = tables.class_of(all[i]), right = tables.class_of(all[i + 1]);
      if (right != 0 && left > right) {
        std::swap(all[i], all[i + 1]);
        moved = true;
      }
    }
  }
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) {
    for (std::size_t i = 1; i < all.size();) {
      // The last starter before, not blocked: D115.
      std::size_t starter = i;
      bool blocked = false;
      while (starter > 0) {
        --starter;
        if (tables.class_of(all[starter]) == 0) break;
        blocked = blocked || tables.class_of(all[starter]) >= tables.class_of(all[i]);
      }
      blocked = blocked || tables.class_of(all[starter]) != 0 || (starter + 1 < i && tables.class_of(all[i]) == 0);
      std::uint32_t composed = 0;
      const std::uint32_t a = all[starter], b = all[i];
      if (a >= 0x1100 && a <= 0x1112 && b >= 0x1161 && b <= 0x1175) {
        composed = 0xAC00 + ((a - 0x1100) * 21 + (b - 0x1161)) * 28;
      } else if (a >= 0xAC00 && a <= 0xD7A3 && (a - 0xAC00) % 28 == 0 && b >= 0x11A8 && b <= 0x11C2) {
        composed = a + (b - 0x11A7);
      } else if (const auto found = tables.pairs.find({a, b}); found != tables.pairs.end()) {
        composed = found->second;
      }
      if (blocked || composed == 0) {
        ++i;
      } else {
        all[starter] = composed;
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  }
  std::string out;
  for (const std::uint32_t point : all) detail::append_utf8(out, point);
  return out;
}

std::string fast_form(NormalForm form, std::string_view text) {
  std::string out;
  text::Rewriting rewriting(text, out, {});
  text::normalize(form, rewriting);
  return out;
}

void check_forms(std::string_view text) {
  std::string forms[4];
  for (const NormalForm form : {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc, NormalForm::kNfkd}) {
    std::string& out = forms[static_cast<std::size_t>(form)];
    out = fast_form(form, text);
    FUZZ_CHECK(detail::is_utf8(out), out);
    FUZZ_CHECK(fast_form(form, out) == out, out);
    if (text.size() <= 400) FUZZ_CHECK(slow_form(form, text) == out, out);
  }
  FUZZ_CHECK(fast_form(NormalForm::kNfc, forms[1]) == forms[0] && fast_form(NormalForm::kNfd, forms[0]) == forms[1],
             text);
  FUZZ_CHECK(fast_form(NormalForm::kNfkc, forms[3]) == forms[2] && fast_form(NormalForm::kNfkd, forms[2]) == forms[3],
             text);
}

constexpr const char* kNormalizers[] = {
    R"({"type":"NFC"})",
    R"({"type":"NFD"})",
    R"({"type":"NFKC"})",
    R"({"type":"NFKD"})",
    R"({"type":"Lowercase"})",
    R"({"type":"StripAccents"})",
    R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":null,"lowercase":true})",
    R"({"type":"BertNormalizer","clean_text":false,"handle_chinese_chars":true,"strip_accents":true,"lowercase":false})",
    R"({"type":"Nmt"})",
    R"({"type":"Strip","strip_left":true,"strip_right":true})",
    R"({"type":"Prepend","prepend":"\u2581"})",
    R"({"type":"Replace","pattern":{"String":" "},"content":"\u2581"})",
    R"({"type":"Replace","pattern":{"Regex":" {2,}|\\s+$|(?<=a)b"},"content":"xy"})",
    R"({"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Lowercase"},{"type":"Replace","pattern":{"Regex":"\\p{M}"},"content":""},{"type":"Strip","strip_left":false,"strip_right":true}]})",
};
constexpr std::size_t kIdempotent = 6;  // the first rows

void check_normalizer(std::uint32_t choice, std::string_view text, Input& input) {
  static const std::vector<text::Normalizer> normalizers = [] {
    std::vector<text::Normalizer> out;
    for (const char* node : kNormalizers) {
      auto normalizer = text::Normalizer::from_json(json::parse(node).value(), "normalizer");
      FUZZ_CHECK(normalizer.ok(), normalizer.status().message());
      out.push_back(*std::move(normalizer));
    }
    return out;
  }();
  const std::size_t row = choice % normalizers.size();
  std::vector<std::size_t> cuts;
  for (int i = 0; i < 3; ++i) cuts.push_back(input.byte() % (text.size() + 1));
  cuts.push_back(text.size());
  std::sort(cuts.begin(), cuts.end());
  std::string out, plain;
  std::uint64_t steps = 0;
  const Status status = normalizers[row].apply(text, out, cuts, steps);
  check_status(status);
  FUZZ_CHECK(status.ok() && normalizers[row].apply(text, plain).ok(), status.message());
  FUZZ_CHECK(out == plain && detail::is_utf8(out), out);
  FUZZ_CHECK(std::is_sorted(cuts.begin(), cuts.end()) && cuts.back() <= out.size(), out);
  FUZZ_CHECK(steps <= 4096 + 600 * (text.size() + out.size()), std::to_string(steps));
  if (row >= kIdempotent) return;
  std::string again;
  FUZZ_CHECK(normalizers[row].apply(out, again).ok() && again == out, again);
}

/// A precompiled_charsmap of any bytes.
void check_charsmap(std::string_view blob, std::string_view text) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string coded;
  for (std::size_t at = 0; at < blob.size(); at += 3) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (at + i < blob.size() ? static_cast<unsigned char>(blob[at + i]) : 0u);
    for (std::size_t i = 0; i < 4; ++i) coded += at + i > blob.size() ? '=' : kDigits[bits >> (18 - 6 * i) & 63u];
  }
  const json::Value node = json::Value::object(
      {{"type", json::Value::string("Precompiled")}, {"precompiled_charsmap", json::Value::string(coded)}});
  const auto normalizer = text::Normalizer::from_json(node, "normalizer");
  check_status(normalizer.status());
  if (!normalizer.ok()) return;
  std::string out;
  const Status status = normalizer->apply(text, out);
  check_status(status);
  FUZZ_CHECK(!status.ok() || detail::is_utf8(out), out);
}

}  // namespace

// The first byte chooses what is checked; three bytes are places of cuts; the rest is text (for a charsmap: the bytes
// up to the last NUL are the map).
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const std::uint32_t choice = input.byte();
  Input places = input;
  for (int i = 0; i < 3; ++i) input.byte();
  std::string_view rest = input.rest();
  if (choice >= 240) {
    const std::size_t end = rest.rfind('\0');
    const std::string_view text =
        end == rest.npos ? std::string_view("Hello \xEF\xAC\x81 \xC2\xA0 x") : rest.substr(end + 1);
    if (detail::is_utf8(text)) check_charsmap(rest.substr(0, end), text);
    return 0;
  }
  rest = rest.substr(0, 4096);
  std::string text;  // without what is no UTF-8
  for (std::size_t at = 0; at < rest.size();) {
    const std::size_t length = detail::decode_utf8(rest, at).length;
    text += rest.substr(at, length);
    at += std::max<std::size_t>(length, 1);
  }
  if (choice % 4 == 0) {
    check_forms(text);
  } else {
    check_normalizer(choice / 4, text, places);
  }
  return 0;
}
