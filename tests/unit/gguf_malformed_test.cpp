// Malformed GGUF files, made by code from one small good file. The numbers G001... are those of
// docs/reference/errors.md. Each is loaded from every kind of source; each must end in exactly its kind of error, with
// a message that names the place, without large allocations, and a good file must load right after.
#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/checkpoint/gguf_writer.hpp>
#include <corbel/detail/utf8.hpp>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "support/alloc_counter.hpp"
#include "support/build_kind.hpp"
#include "support/gguf_builder.hpp"
#include "support/gguf_sources.hpp"
#include "support/malformed.hpp"
#include "support/small_stack.hpp"
#include "support/support.hpp"

using namespace corbel_test;
using namespace std::string_literals;
using corbel::Checkpoint;
using corbel::Context;
using corbel::Errc;
using corbel::errc_name;
using corbel::Result;
using corbel::TensorInfo;

namespace {

constexpr std::uint64_t k2To31 = std::uint64_t{1} << 31;
constexpr std::uint64_t k2To32 = std::uint64_t{1} << 32;
constexpr std::uint64_t k2To63 = std::uint64_t{1} << 63;
constexpr std::uint64_t kMax = ~std::uint64_t{0};

// A good file with one change.
std::string changed(const std::function<void(GgufBuilder&)>& change) {
  GgufBuilder file = good_gguf();
  change(file);
  return file.build();
}

// A good file with one more key, or with one key written differently.
std::string with_key(const std::string& record) {
  return changed([&](GgufBuilder& file) { file.keys.push_back(record); });
}
std::string with_value(std::uint64_t type, const std::string& value) {
  return with_key(gguf_key("bad.key", type, value));
}
std::string with_alignment(std::uint64_t type, const std::string& value) {
  return changed([&](GgufBuilder& file) { file.keys[1] = gguf_key("general.alignment", type, value); });
}
// A good file with one changed row of the tensor table; row 1 is blk.0.attn_q.weight, Q4_0 [2, 32] at 128.
std::string with_tensor(const std::function<void(GgufTensor&)>& change, std::size_t index = 1) {
  return changed([&](GgufBuilder& file) { change(file.tensors[index]); });
}
std::string with_dims(std::vector<std::uint64_t> dims, std::uint64_t type, std::size_t index = 1) {
  return with_tensor([&](GgufTensor& tensor) { tensor.dims = std::move(dims), tensor.type = type; }, index);
}
std::string cut(std::string file, std::size_t bytes) { return file.substr(0, file.size() - bytes); }

std::vector<MalformedCase> container_cases() {
  const std::string good = good_gguf().build();
  const std::size_t head = good_gguf().head().size();
  std::vector<MalformedCase> cases = {
      {"G001", "", Errc::kTruncated, {"magic"}},
      {"G002", "G", Errc::kTruncated, {"magic"}},
      {"G002", "GG", Errc::kTruncated, {"magic"}},
      {"G002", "GGU", Errc::kTruncated, {"magic"}},
      {"G003", "GGUF", Errc::kTruncated, {"version", "byte 4"}},
      {"G004", "GGML" + good.substr(4), Errc::kBadMagic, {"\"GGML\"", "GGUF"}},
      {"G004", "tjgg" + good.substr(4), Errc::kBadMagic, {"\"tjgg\""}},
      {"G004", "\xFF\xD8\xFF\xE0 a JPEG", Errc::kBadMagic, {"not a GGUF file"}},
      {"G004", "ab", Errc::kBadMagic, {"\"ab\""}},
      {"G005",
       changed([](GgufBuilder& file) { file.version = 0x03000000; }),
       Errc::kUnsupportedVersion,
       {"big-endian", "3"}},
      {"G005",
       changed([](GgufBuilder& file) { file.version = 0x02000000; }),
       Errc::kUnsupportedVersion,
       {"big-endian", "2"}},
      {"G006", changed([](GgufBuilder& file) { file.version = 0; }), Errc::kUnsupportedVersion, {"version 0"}},
      {"G007", changed([](GgufBuilder& file) { file.version = 1; }), Errc::kUnsupportedVersion, {"version 1"}},
      {"G008", changed([](GgufBuilder& file) { file.version = 4; }), Errc::kUnsupportedVersion, {"version 4"}},
      {"G008",
       changed([](GgufBuilder& file) { file.version = k2To32 - 1; }),
       Errc::kUnsupportedVersion,
       {"4294967295"}},
      {"G009", changed([](GgufBuilder& file) { file.num_tensors = kMax; }), Errc::kLimitExceeded, {"tensors", "65536"}},
      {"G010",
       changed([](GgufBuilder& file) { file.num_tensors = k2To63; }),
       Errc::kLimitExceeded,
       {"9223372036854775808"}},
      {"G011",
       changed([](GgufBuilder& file) { file.num_tensors = kMax / sizeof(TensorInfo) + 1; }),
       Errc::kLimitExceeded,
       {"tensors"}},
      // What follows the table is read as one more row: here the data's first bytes as the length of a name.
      {"G012", changed([](GgufBuilder& file) { file.num_tensors = 6; }), Errc::kLimitExceeded, {"tensor name"}},
      {"G013", changed([](GgufBuilder& file) { file.num_tensors = 4; }), Errc::kGap, {"more than the 4 tensors"}},
      {"G014", changed([](GgufBuilder& file) { file.num_keys = kMax; }), Errc::kLimitExceeded, {"metadata keys"}},
      // The first tensor is read as a key with a u16, and the rest of its row as the length of a tensor's name.
      {"G015", changed([](GgufBuilder& file) { file.num_keys = 18; }), Errc::kLimitExceeded, {"tensor name"}},
      {"G018", with_key(le64(kMax) + "k"), Errc::kLimitExceeded, {"metadata key", "18446744073709551615", "1024"}},
      {"G019",
       "GGUF" + le32(3) + le64(0) + le64(1) + le64(11) + "0123456789",
       Errc::kTruncated,
       {"metadata key", "11", "10"}},
      {"G020", with_key(gguf_key("", 0, "x")), Errc::kBadValue, {"metadata key", "empty"}},
      {"G021", with_key(gguf_key(std::string(1025, 'k'), 0, "x")), Errc::kLimitExceeded, {"1025", "1024"}},
      {"G022", with_key(gguf_key("a\0b"s, 0, "x")), Errc::kBadUtf8, {"a\\x00b", "NUL"}},
      {"G022", with_key(gguf_key("a\xFF", 0, "x")), Errc::kBadUtf8, {"a\xEF\xBF\xBD", "byte"}},
      {"G023", with_key(gguf_key("test.u8", 0, le(200, 1))), Errc::kDuplicate, {"test.u8"}},
      {"G023", with_key(gguf_key("test.u8", 8, gguf_string("other"))), Errc::kDuplicate, {"test.u8"}},
      {"G024", with_value(13, "x"), Errc::kBadType, {"bad.key", "13"}},
      {"G025", with_value(k2To32 - 1, "x"), Errc::kBadType, {"bad.key", "4294967295"}},
      {"G026", with_value(7, "\x02"), Errc::kBadValue, {"bad.key", "bool", "2"}},
      {"G026", with_value(9, gguf_array(7, 3, "\x01\x01\xFF"s)), Errc::kBadValue, {"bad.key", "bool", "255"}},
      {"G027", with_value(8, le64(kMax)), Errc::kLimitExceeded, {"bad.key", "18446744073709551615", "67108864"}},
      {"G028", with_value(8, le64(std::uint64_t{1} << 30)), Errc::kLimitExceeded, {"bad.key", "1073741824"}},
      {"G030", with_value(9, gguf_array(13, 1, "x")), Errc::kBadType, {"bad.key", "13"}},
      {"G030", with_value(9, gguf_array(k2To32 - 1, 1, "x")), Errc::kBadType, {"bad.key", "4294967295"}},
      {"G031",
       with_value(9, gguf_array(9, 1, gguf_array(0, 1, "x"))),
       Errc::kUnsupported,
       {"bad.key", "array of arrays"}},
      {"G033", with_value(9, gguf_array(0, k2To63, "x")), Errc::kLimitExceeded, {"bad.key", "67108864"}},
      {"G034", with_value(9, gguf_array(10, (std::uint64_t{1} << 61) + 1, le64(1))), Errc::kLimitExceeded, {"bad.key"}},
      {"G035",
       with_value(9, gguf_array(8, std::uint64_t{1} << 26, gguf_string("x"))),
       Errc::kTruncated,
       {"bad.key", "67108864"}},
      {"G035", with_value(9, gguf_array(0, std::uint64_t{1} << 26, "x")), Errc::kTruncated, {"bad.key", "67108864"}},
      {"G041", with_alignment(4, le32(0)), Errc::kBadAlignment, {"general.alignment", "found 0"}},
      {"G042", with_alignment(4, le32(13)), Errc::kBadAlignment, {"found 13"}},
      {"G043", with_alignment(4, le32(k2To31)), Errc::kBadAlignment, {"2147483648", "65536"}},
      {"G044", with_alignment(4, le32(k2To32 - 1)), Errc::kBadAlignment, {"4294967295"}},
      {"G045", with_alignment(5, le32(32)), Errc::kTypeMismatch, {"general.alignment", "u32", "i32"}},
      {"G045", with_alignment(10, le64(32)), Errc::kTypeMismatch, {"u64"}},
      {"G045", with_alignment(8, gguf_string("32")), Errc::kTypeMismatch, {"string"}},
      {"G047",
       with_tensor([](GgufTensor& tensor) { tensor.name = gguf_string(""); }),
       Errc::kBadValue,
       {"tensor name", "empty"}},
      {"G048",
       with_tensor([](GgufTensor& tensor) { tensor.name = gguf_string(std::string(257, 'n')); }),
       Errc::kLimitExceeded,
       {"tensor name", "257", "256"}},
      {"G049",
       with_tensor([](GgufTensor& tensor) { tensor.name = gguf_string("a\x80"); }),
       Errc::kBadUtf8,
       {"a\xEF\xBF\xBD"}},
      {"G049",
       with_tensor([](GgufTensor& tensor) { tensor.name = gguf_string("a\nb"); }),
       Errc::kBadValue,
       {"a\\x0Ab"}},
      {"G049",
       with_tensor([](GgufTensor& tensor) { tensor.name = gguf_string("\x1B[31m"); }),
       Errc::kBadValue,
       {"\\x1B[31m"}},
      {"G049",
       with_tensor([](GgufTensor& tensor) { tensor.name = gguf_string("a\xC2\x9Bz"); }),
       Errc::kBadValue,
       {"a\\x9Bz"}},
      {"G050",
       with_tensor([](GgufTensor& tensor) { tensor.name = gguf_string("output_norm.weight"); }),
       Errc::kDuplicate,
       {"output_norm.weight", "1 and 4"}},
      {"G051",
       with_tensor([](GgufTensor& tensor) { tensor.dims = {}; }),
       Errc::kBadValue,
       {"blk.0.attn_q.weight", "0 dimensions"}},
      {"G052", with_dims({1, 1, 1, 1, 1}, 0), Errc::kLimitExceeded, {"blk.0.attn_q.weight", "5 dimensions"}},
      {"G053",
       with_tensor([](GgufTensor& tensor) { tensor.num_dims = k2To32 - 1; }),
       Errc::kLimitExceeded,
       {"4294967295"}},
      {"G054", with_dims({32, 0}, 2), Errc::kBadValue, {"blk.0.attn_q.weight", "dimension is 0"}},
      {"G055", with_dims({kMax}, 0), Errc::kOverflow, {"blk.0.attn_q.weight", "18446744073709551615"}},
      {"G056", with_dims({k2To63 - 1, 2}, 24), Errc::kOverflow, {"blk.0.attn_q.weight"}},
      {"G057", with_dims({k2To32, k2To32}, 0), Errc::kOverflow, {"blk.0.attn_q.weight"}},
      {"G058", with_dims({4, (1u << 30) - 1, (1u << 30) + 1}, 0), Errc::kOverflow, {"blk.0.attn_q.weight"}},
      {"G059", with_dims({std::uint64_t{1} << 62}, 27), Errc::kOverflow, {"size in bytes"}},
      {"G060",
       changed(
           [](GgufBuilder& file) {
             file.tensors = {{gguf_string("a"), {k2To63 - 64}, 24, 0},
                             {gguf_string("b"), {k2To63 - 64}, 24, k2To63 - 64}};
           }),
       Errc::kOverflow,
       {"tensor \"b\""}},
      {"G061", with_dims({k2To32 + 32, 2}, 2), Errc::kSizeMismatch, {"blk.0.attn_q.weight", "4831838244"}},
      {"G062", with_dims({255}, 14, 3), Errc::kShapeMismatch, {"blk.0.ffn_up.weight", "255", "256", "Q6_K"}},
      {"G063", with_dims({8, 64}, 14, 3), Errc::kShapeMismatch, {"blk.0.ffn_up.weight", "rows of 8"}},
      {"G065", with_dims({32, 2}, 43), Errc::kBadType, {"blk.0.attn_q.weight", "43"}},
      {"G065", with_dims({32, 2}, k2To31), Errc::kBadType, {"2147483648"}},
      {"G065", with_dims({32, 2}, k2To32 - 1), Errc::kBadType, {"4294967295"}},
      {"G066",
       with_tensor([](GgufTensor& tensor) { tensor.offset = 130; }),
       Errc::kBadOffset,
       {"blk.0.attn_q.weight", "130", "32"}},
      {"G067",
       with_tensor([](GgufTensor& tensor) { tensor.offset = std::uint64_t{1} << 40; }, 4),
       Errc::kBadOffset,
       {"output_norm.weight"}},
      {"G068",
       with_tensor([](GgufTensor& tensor) { tensor.offset = kMax - 31; }),
       Errc::kOverflow,
       {"blk.0.attn_q.weight"}},
      {"G068",
       with_tensor([&](GgufTensor& tensor) { tensor.offset = kMax - 31 - (head + 31) / 32 * 32; }),
       Errc::kOverflow,
       {"blk.0.attn_q.weight"}},
      {"G069", cut(good, 8 + 1), Errc::kTruncated, {"output_norm.weight"}},
      {"G070", cut(good, 704 / 2), Errc::kTruncated, {"output_norm.weight"}},
      {"G070", cut(good, 704), Errc::kTruncated, {"output_norm.weight"}},
      {"G071",
       with_tensor([](GgufTensor& tensor) { tensor.offset = 0; }),
       Errc::kOverlap,
       {"blk.0.attn_q.weight", "token_embd.weight"}},
      {"G072",
       with_tensor([](GgufTensor& tensor) { tensor.offset = 32; }),
       Errc::kOverlap,
       {"blk.0.attn_q.weight", "token_embd.weight"}},
      {"G073",
       changed(
           [](GgufBuilder& file) {
             for (std::size_t i = 2; i < 5; ++i) file.tensors[i].offset += 32;
             file.data.insert(192, 32, 'x');
           }),
       Errc::kGap,
       {"blk.0.attn_norm.weight", "belong to no tensor"}},
      {"G073",
       changed(
           [](GgufBuilder& file) {
             for (GgufTensor& tensor : file.tensors) tensor.offset += 32;
             file.data.insert(0, 32, 'x');
           }),
       Errc::kGap,
       {"token_embd.weight"}},
      {"G075", good + std::string(1 << 20, '\0'), Errc::kTrailingData, {"1048584 bytes"}},
      {"G075", good + "x", Errc::kTrailingData, {"9 bytes"}},
      {"G076", with_dims({8, 5}, 0, 0), Errc::kOverlap, {"blk.0.attn_q.weight", "token_embd.weight"}},
  };
  for (const std::uint64_t type : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u}) {
    cases.push_back({"G064",
                     with_dims({32, 2}, type),
                     Errc::kUnsupported,
                     {"blk.0.attn_q.weight", corbel::find_ggml_type(static_cast<std::uint32_t>(type))->name}});
  }
  // Files of less than 100 bytes, as they were reported of other programs.
  const auto tiny = [](std::vector<std::uint64_t> dims, std::optional<std::uint64_t> count) {
    GgufBuilder file;
    file.alignment = 1;
    file.tensors = {{gguf_string("w"), std::move(dims), 0, 0, count}};
    return file.build();
  };
  cases.push_back({"GG-01", tiny({4, 0}, {}), Errc::kBadValue, {"tensor \"w\"", "dimension is 0"}});
  cases.push_back(
      {"GG-03", "GGUF" + le32(3) + le64(0) + le64(1) + le64(0xFFFFFFFFFFFF), Errc::kTruncated, {"metadata", "8 more"}});
  cases.push_back({"GG-03",
                   "GGUF" + le32(3) + le64(0) + le64(1) + le64(0xFFFFFFFFFFFF) + std::string(8, 'k'),
                   Errc::kLimitExceeded,
                   {"281474976710655", "1024"}});
  for (const std::uint64_t count : {std::uint64_t{5}, std::uint64_t{9}, std::uint64_t{1000000}, k2To32 - 1}) {
    cases.push_back({"GG-05", tiny({1, 1}, count), Errc::kLimitExceeded, {"\"w\"", std::to_string(count)}});
  }
  cases.push_back({"GG-07", with_alignment(4, le32(0)), Errc::kBadAlignment, {"general.alignment"}});
  cases.push_back({"GG-07", with_alignment(4, le32(3)), Errc::kBadAlignment, {"general.alignment", "3"}});
  cases.push_back({"GG-07", with_alignment(5, le32(k2To32 - 32)), Errc::kTypeMismatch, {"general.alignment"}});
  cases.push_back({"GG-07", with_alignment(4, le32(1u << 30)), Errc::kBadAlignment, {"1073741824"}});
  // A string that ends one byte behind the file.
  GgufBuilder alone;
  alone.keys = {gguf_key("bad.key", 8, gguf_string("0123456789"))};
  cases.push_back({"G029", alone.head().substr(0, alone.head().size() - 1), Errc::kTruncated, {"bad.key", "10", "9"}});
  std::string nested;
  for (int i = 0; i < 10000; ++i) nested += le32(9) + le64(1);
  cases.push_back({"G032", with_value(9, nested), Errc::kUnsupported, {"array of arrays"}});
  return cases;
}

}  // namespace

TEST_CASE("gguf malformed: each named case has exactly its error, from every source") {
  const Context context;
  const std::string good = good_gguf().build();
  const TemporaryFile on_disk("");
  const std::vector<MalformedCase> cases = container_cases();
  CHECK(cases.size() > 85);
  for (const MalformedCase& wrong : cases) {
    CAPTURE(wrong.id);
    on_disk.write(wrong.file);
    std::string first;
    for (const Source& source : sources(wrong.file, on_disk.path())) {
      CAPTURE(source.name);
      const auto start = std::chrono::steady_clock::now();
      const AllocationScope scope;
      const auto result = source.open(context, {});
      const AllocationStats stats = scope.stats();
      const auto time = std::chrono::steady_clock::now() - start;
      REQUIRE_FALSE(result.ok());
      const std::string message(result.status().message());
      CAPTURE(message);
      CHECK(std::string(errc_name(result.status().code())) == errc_name(wrong.code));
      CHECK(message_fault(message).empty());
      // "name: what", the same from all sources but for the name.
      const std::string name = source.name == "path" || source.name == "mapped" ? on_disk.path() : "file";
      REQUIRE(message.substr(0, name.size() + 2) == name + ": ");
      const std::string what = message.substr(name.size() + 2);
      if (first.empty()) first = what;
      CHECK(what == first);
      for (const std::string& part : wrong.says) {
        CAPTURE(part);
        CHECK(what.find(part) != std::string::npos);
      }
      CHECK(within_memory(stats, wrong.file.size()));
      CHECK(std::chrono::duration<double>(time).count() < kSlowness);
    }
    const auto after = Checkpoint::from_memory(bytes_of(good), context);
    REQUIRE(after.ok());
    CHECK(usable(*after));
  }
}

TEST_CASE("gguf malformed: the named cases need little stack") {
  const std::vector<MalformedCase> cases = container_cases();
  const std::string good = good_gguf().build();
  std::size_t right = 0;
  REQUIRE(on_small_stack([&] {
    const Context context;
    for (const MalformedCase& wrong : cases) {
      const auto result = Checkpoint::from_memory(bytes_of(wrong.file), context);
      const auto slow = Checkpoint::from_reader(std::make_shared<OneByteReader>(wrong.file), context);
      right += result.status().code() == wrong.code && slow.status().code() == wrong.code ? 1u : 0u;
    }
    const auto after = Checkpoint::from_memory(bytes_of(good), context);
    right += after.ok() && usable(*after) ? 1u : 0u;
  }));
  CHECK(right == cases.size() + 1);
}

TEST_CASE("gguf malformed: values of another type or domain than asked for are found by typed access") {
  const Context context;
  const auto metadata = [&](const std::string& record) {
    const std::string file = with_key(record);
    const auto checkpoint = Checkpoint::from_memory(bytes_of(file), context);
    REQUIRE(checkpoint.ok());
    return checkpoint->metadata();
  };
  // G036 to G038.
  CHECK(metadata(gguf_key("k", 9, gguf_array(4, 1, le32(7)))).get_uint("k").status().code() == Errc::kTypeMismatch);
  CHECK(metadata(gguf_key("k", 4, le32(7))).get_string("k").status().code() == Errc::kTypeMismatch);
  CHECK(metadata(gguf_key("k", 6, le32(0x40000000u))).get_uint("k").status().code() == Errc::kTypeMismatch);
  CHECK(metadata(gguf_key("k", 5, le32(0xFFFFFFFFu))).get_uint("k").status().code() == Errc::kBadValue);
  // G016, G017 and G080: a container without keys or tensors is one; who needs them says so.
  const std::string no_keys = changed([](GgufBuilder& file) { file.keys.clear(); });
  const auto empty = Checkpoint::from_memory(bytes_of(no_keys), context);
  REQUIRE(empty.ok());
  CHECK(empty->metadata().get_string("general.architecture").status().code() == Errc::kMissingKey);
  const std::string no_tensors = changed([](GgufBuilder& file) { file.tensors.clear(), file.data.clear(); });
  CHECK(Checkpoint::from_memory(bytes_of(no_tensors), context)->tensors().empty());
}

TEST_CASE("gguf malformed: files that differ from the usual and are legal load") {
  const Context context;
  const std::string good = good_gguf().build();
  const auto loads = [&](const std::string& file) {
    const auto checkpoint = Checkpoint::from_memory(bytes_of(file), context);
    INFO(checkpoint.status().message());
    REQUIRE(checkpoint.ok());
    CHECK(usable(*checkpoint));
    CHECK(checkpoint->read_f32(checkpoint->tensors()[0]).ok());
    return *checkpoint;
  };
  // The alignment tail after the last tensor: 8 bytes in full, in part, not at all.
  for (const std::size_t missing : {1u, 7u, 8u}) CHECK(loads(cut(good, missing)).tensors().size() == 5);
  // G074: tensors listed in another order than their data.
  const std::string reversed =
      changed([](GgufBuilder& file) { std::reverse(file.tensors.begin(), file.tensors.end()); });
  const Checkpoint expected = loads(good);
  const Checkpoint other = loads(reversed);
  CHECK(other.tensors()[0].name == "output_norm.weight");
  for (const TensorInfo& tensor : expected.tensors()) {
    const auto bytes = other.bytes(*other.find_tensor(tensor.name));
    CHECK(std::equal(bytes.begin(), bytes.end(), expected.bytes(tensor).begin(), expected.bytes(tensor).end()));
  }
  // Bytes between tensors that are not zero, and padding of the head that is not zero.
  std::string dirty = good;
  const std::size_t head = good_gguf().head().size();
  for (std::size_t at = head; at % 32 != 0; ++at) dirty[at] = 'x';
  REQUIRE(dirty != good);
  CHECK(loads(dirty).tensors().size() == 5);
  // G046: alignment 1, quantized tensors at odd places.
  GgufBuilder unaligned = good_gguf();
  unaligned.keys[1] = gguf_key("general.alignment", 4, le32(1));
  unaligned.alignment = 1;
  std::string data;
  for (GgufTensor& tensor : unaligned.tensors) {
    const std::size_t bytes = &tensor == &unaligned.tensors[0]   ? 128
                              : &tensor == &unaligned.tensors[1] ? 36
                              : &tensor == &unaligned.tensors[2] ? 10
                              : &tensor == &unaligned.tensors[3] ? 420
                                                                 : 24;
    data += good_gguf().data.substr(tensor.offset, bytes);
    tensor.offset = data.size() - bytes;
  }
  unaligned.data = data;
  if ((unaligned.head().size() + 128) % 2 == 0) unaligned.keys.push_back(gguf_key("pad", 0, "x"));
  const std::string unaligned_file = unaligned.build();
  const Checkpoint packed = loads(unaligned_file);
  for (const TensorInfo& tensor : expected.tensors()) {
    CHECK(*packed.read_f32(*packed.find_tensor(tensor.name)) == *expected.read_f32(tensor));
  }
  // A type without blocks whose rows may have any length.
  const std::string i8 = with_dims({36}, 24);
  const Checkpoint listed = loads(i8);
  CHECK(listed.tensors()[1].supported);
  CHECK(listed.tensors()[1].bytes == 36);
  CHECK(listed.read_f32(listed.tensors()[1])->size() == 36);
}

TEST_CASE("gguf malformed: limits at, below and above their value") {
  const Context context;
  struct Limit {
    std::uint64_t corbel::CheckpointLimits::*field;
    std::function<std::string(std::uint64_t)> file;
    Errc code = Errc::kLimitExceeded;
  };
  const std::vector<Limit> limits = {
      {&corbel::CheckpointLimits::metadata_keys,
       [](std::uint64_t n) {
         return changed([&](GgufBuilder& file) {
           while (file.keys.size() < n) file.keys.push_back(gguf_key("k" + std::to_string(file.keys.size()), 0, "x"));
         });
       }},
      {&corbel::CheckpointLimits::tensors,
       [](std::uint64_t n) {
         return changed([&](GgufBuilder& file) {
           while (file.tensors.size() < n) {
             file.tensors.push_back({gguf_string("t" + std::to_string(file.tensors.size())), {8}, 0, file.data.size()});
             file.data.append(32, 'x');
           }
         });
       }},
      {&corbel::CheckpointLimits::key_bytes,
       [](std::uint64_t n) { return with_key(gguf_key(std::string(n, 'k'), 0, "x")); }},
      {&corbel::CheckpointLimits::tensor_name_bytes,
       [](std::uint64_t n) {
         return with_tensor([&](GgufTensor& tensor) { tensor.name = gguf_string(std::string(n, 'n')); });
       }},
      {&corbel::CheckpointLimits::string_bytes,
       [](std::uint64_t n) { return with_value(8, gguf_string(std::string(n, 's'))); }},
      {&corbel::CheckpointLimits::array_elements,
       [](std::uint64_t n) { return with_value(9, gguf_array(0, n, std::string(n, 'a'))); }},
  };
  for (std::size_t i = 0; i < limits.size(); ++i) {
    CAPTURE(i);
    corbel::OpenOptions options;
    options.limits.*limits[i].field = 100;
    for (const std::uint64_t n : {99u, 100u, 101u}) {
      CAPTURE(n);
      const std::string file = limits[i].file(n);
      const auto result = Checkpoint::from_memory(bytes_of(file), context, options);
      CHECK(result.ok() == (n <= 100));
      if (n > 100) CHECK(result.status().code() == limits[i].code);
    }
  }
  // The default limits, where a file that reaches them is small.
  CHECK(Checkpoint::from_memory(bytes_of(limits[2].file(1024)), context).ok());
  CHECK(Checkpoint::from_memory(bytes_of(limits[3].file(256)), context).ok());
  corbel::OpenOptions options;
  options.limits.max_alignment = 16;
  CHECK(Checkpoint::from_memory(bytes_of(good_gguf().build()), context, options).status().code() ==
        Errc::kBadAlignment);
  options.limits.max_alignment = 32;
  CHECK(Checkpoint::from_memory(bytes_of(good_gguf().build()), context, options).ok());
}

TEST_CASE("gguf malformed: very many small records take linear time") {
  const Context context;
  const auto seconds = [&](const std::string& file, Errc code) {
    const auto start = std::chrono::steady_clock::now();
    const AllocationScope scope;
    const auto result = Checkpoint::from_memory(bytes_of(file), context);
    CHECK(std::string(errc_name(result.ok() ? Errc::kOk : result.status().code())) == errc_name(code));
    // Tables of small records take more memory than the file: up to about 100 bytes a record
    // (docs/reference/errors.md).
    CHECK(scope.stats().largest <= (8u << 20));
    CHECK(scope.stats().peak <= static_cast<std::int64_t>((16u << 20) + 2 * file.size()));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  GgufBuilder tensors;
  tensors.keys = {gguf_key("general.alignment", 4, le32(1))};
  tensors.alignment = 1;
  for (int i = 0; i < 65536; ++i)
    tensors.tensors.push_back({gguf_string("t" + std::to_string(i)), {1}, 0, static_cast<std::uint64_t>(i) * 4});
  tensors.data.assign(65536 * 4, 'x');
  CHECK(seconds(tensors.build(), Errc::kOk) < kSlowness);  // G077
  tensors.tensors.push_back({gguf_string("one.more"), {1}, 0, 65536 * 4});
  CHECK(seconds(tensors.build(), Errc::kLimitExceeded) < kSlowness);  // G078
  GgufBuilder keys;
  for (int i = 0; i < 65536; ++i) keys.keys.push_back(gguf_key("k" + std::to_string(i), 0, "x"));
  CHECK(seconds(keys.build(), Errc::kOk) < kSlowness);  // G079
  keys.keys.back() = gguf_key("k0", 0, "x");
  CHECK(seconds(keys.build(), Errc::kDuplicate) < kSlowness);
  keys.keys.push_back(gguf_key("one.more", 0, "x"));
  CHECK(seconds(keys.build(), Errc::kLimitExceeded) < kSlowness);
  // Long keys that differ in their last byte only.
  GgufBuilder similar;
  for (int i = 0; i < 20000; ++i) similar.keys.push_back(gguf_key(std::string(1000, 'k') + std::to_string(i), 0, "x"));
  CHECK(seconds(similar.build(), Errc::kOk) < kSlowness);
}

TEST_CASE("gguf malformed: a file cut at any byte is truncated, never anything else") {  // G039
  const Context context;
  const std::string good = good_gguf().build();
  std::size_t truncated = 0;
  std::size_t placed = 0;
  std::size_t small = 0;
  const std::size_t needed = good.size() - 8;  // without the alignment tail
  for (std::size_t length = 0; length < needed; ++length) {
    const AllocationScope scope;
    const auto result = Checkpoint::from_memory(bytes_of(good).first(length), context);
    small += within_memory(scope.stats(), length) ? 1u : 0u;
    truncated += !result.ok() && result.status().code() == Errc::kTruncated ? 1u : 0u;
    placed += result.status().message().find("byte") != std::string_view::npos ? 1u : 0u;
  }
  CHECK(truncated == needed);
  CHECK(placed == needed);
  CHECK(small == needed);
}

TEST_CASE("gguf malformed: any byte of the head changed is a typed error or a legal file") {  // G040
  const Context context;
  std::string file = good_gguf().build();
  const std::size_t head = good_gguf().head().size();
  std::size_t tried = 0, legal = 0, bad_loads = 0, bad_errors = 0, large = 0;
  for (std::size_t at = 0; at < head; ++at) {
    const auto original = static_cast<unsigned char>(file[at]);
    std::vector<int> values = {0x00, 0xFF, original + 1, original - 1};
    for (int bit = 0; bit < 8; ++bit) values.push_back(original ^ 1 << bit);
    for (const int value : values) {
      file[at] = static_cast<char>(value & 0xFF);
      if (static_cast<unsigned char>(file[at]) == original) continue;
      ++tried;
      const AllocationScope scope;
      const auto result = Checkpoint::from_memory(bytes_of(file), context);
      large += within_memory(scope.stats(), file.size()) ? 0u : 1u;
      if (!result.ok()) {
        const Errc code = result.status().code();
        bad_errors +=
            code == Errc::kInternal || code == Errc::kOutOfMemory || !message_fault(result.status().message()).empty()
                ? 1u
                : 0u;
        continue;
      }
      // Legal if what was read, written again, is the head of the file to the byte, and every tensor can be used.
      ++legal;
      corbel::GgufWriter writer(result->format_version());
      for (const auto& entry : result->metadata().entries()) writer.metadata().set(entry.key, entry.value);
      bool same = usable(*result);
      for (const TensorInfo& tensor : result->tensors()) {
        const auto bytes = bytes_of(file).subspan(tensor.offset, tensor.bytes);
        same =
            same && writer.add_tensor(tensor.name, tensor.shape, tensor.ggml_type, {bytes.begin(), bytes.end()}).ok();
      }
      const auto again = writer.to_bytes();
      same = same && again.ok() && again->size() >= head &&
             std::equal(again->begin(), again->begin() + static_cast<std::ptrdiff_t>(head), bytes_of(file).begin());
      bad_loads += same ? 0u : 1u;
    }
    file[at] = static_cast<char>(original);
  }
  CHECK(tried > 9000);
  CHECK(legal > 1000);
  CHECK(legal < tried / 2);
  CHECK(bad_loads == 0);
  CHECK(bad_errors == 0);
  CHECK(large == 0);
}

TEST_CASE("gguf malformed: a path that is no regular file is io_open and never blocks") {  // G110
  const Context context;
  const TemporaryFile base("x");
  const auto opens = [&](const std::string& path) {
    CAPTURE(path);
    for (const bool map : {false, true}) {
      const auto start = std::chrono::steady_clock::now();
      const auto result = Checkpoint::open(path, context, {.map = map});
      CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));
      REQUIRE_FALSE(result.ok());
      CHECK(std::string(errc_name(result.status().code())) == "io_open");
      CHECK(message_fault(result.status().message()).empty());
      const std::string place = (path.empty() ? "\"\"" : corbel::detail::printable(path, 200)) + ": cannot open";
      CHECK(result.status().message().substr(0, place.size()) == place);
    }
  };
  opens("/nonexistent-folder/file.gguf");
  opens(base.path() + "/below-a-file");
  opens("");
  const std::string folder = base.path() + ".folder";
  std::filesystem::create_directory(folder);
  CHECK(Checkpoint::open(folder, context).status().code() == Errc::kIoOpen);  // no model in it
  std::filesystem::remove(folder);
  opens("/dev/null");
  opens("/dev/zero");
  opens("a\0b"s);
  opens(std::string(5000, 'x'));
  if (std::filesystem::exists("/proc/self/status")) opens("/proc/self/status");
  const std::string fifo = base.path() + ".fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  opens(fifo);
  std::filesystem::remove(fifo);
  const std::string loop = base.path() + ".loop";
  std::filesystem::create_symlink(loop, loop);
  opens(loop);
  std::filesystem::remove(loop);
  if (::geteuid() != 0) {
    std::filesystem::permissions(base.path(), std::filesystem::perms::none);
    opens(base.path());
  } else {
    skip("gguf malformed: a file without permissions is io_open", "running as root");
  }
  // An empty regular file is a file.
  const TemporaryFile empty("");
  CHECK(Checkpoint::open(empty.path(), context).status().code() == Errc::kTruncated);
  CHECK(Checkpoint::open(empty.path(), context, {.map = true}).status().code() == Errc::kTruncated);
}

TEST_CASE("gguf malformed: readers that fail, lie or throw") {
  class FaultyReader : public OneByteReader {
   public:
    FaultyReader(std::string bytes, std::uint64_t at, int fault)
        : OneByteReader(std::move(bytes)), at_(at), fault_(fault) {}
    Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) const override {
      if (offset < at_) return OneByteReader::read(offset, out);
      if (fault_ == 0) return corbel::Status(Errc::kIoRead, "the disk is gone");
      if (fault_ == 1) return std::size_t{0};
      if (fault_ == 2) return out.size() + 1;
      throw std::runtime_error("the host's own");
    }

   private:
    std::uint64_t at_;
    int fault_;
  };
  const Context context;
  const std::string good = good_gguf().build();
  const std::size_t head = good_gguf().head().size();
  for (std::uint64_t at = 0; at < head; at += 13) {
    const auto open = [&](int fault) {
      return Checkpoint::from_reader(std::make_shared<FaultyReader>(good, at, fault), context);
    };
    const auto gone = open(0);
    CHECK(gone.status().code() == Errc::kIoRead);
    CHECK(gone.status().message().find("the disk is gone") != std::string_view::npos);
    CHECK(gone.status().message().find("byte " + std::to_string(at)) != std::string_view::npos);
    CHECK(open(1).status().code() == Errc::kTruncated);
    CHECK(open(2).status().code() == Errc::kIoRead);
    CHECK_THROWS_AS(open(3), std::runtime_error);
  }
  // The same after a good head.
  for (int fault = 0; fault < 4; ++fault) {
    const auto checkpoint =
        Checkpoint::from_reader(std::make_shared<FaultyReader>(good, good.size() - 100, fault), context);
    REQUIRE(checkpoint.ok());
    const TensorInfo& last = checkpoint->tensors()[4];
    CHECK(checkpoint->read_f32(checkpoint->tensors()[0]).ok());
    if (fault == 3) {
      CHECK_THROWS_AS(checkpoint->read_f32(last), std::runtime_error);
      continue;
    }
    const corbel::Status status = checkpoint->read_f32(last).status();
    CHECK(status.code() == (fault == 1 ? Errc::kTruncated : Errc::kIoRead));
    CHECK(status.message().find("reader: tensor \"output_norm.weight\"") != std::string_view::npos);
  }
  CHECK(Checkpoint::from_reader(nullptr, context).status().code() == Errc::kInvalidArgument);
}
