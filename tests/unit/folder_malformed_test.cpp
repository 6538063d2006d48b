// Malformed safetensors files, indices, config files and split GGUF files, made by code from small good ones. The
// numbers S01, I01, C01, G108 are those of docs/reference/errors.md. Each must end in exactly its kind of error, with a
// message that names the place, without large allocations, and a good model must load right after.
#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/checkpoint/generation_defaults.hpp>
#include <corbel/checkpoint/gguf_writer.hpp>
#include <corbel/checkpoint/json.hpp>
#include <corbel/checkpoint/safetensors_writer.hpp>
#include <corbel/detail/utf8.hpp>

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <vector>

#include "support/alloc_counter.hpp"
#include "support/gguf_builder.hpp"
#include "support/gguf_sources.hpp"
#include "support/malformed.hpp"
#include "support/memory_folder.hpp"
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

std::string safetensors(const std::string& header, const std::string& data) {
  return le64(header.size()) + header + data;
}

// Three tensors in 48 bytes: x F32 [2, 3] at 0, y BF16 [4] at 24, z F32 [4] at 32.
const std::string kX = R"("x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})";
const std::string kY = R"("y":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]})";
const std::string kZ = R"("z":{"dtype":"F32","shape":[4],"data_offsets":[32,48]})";

std::string data48() {
  std::string data;
  for (int i = 0; i < 12; ++i) data += le32(0x3F800000u + static_cast<unsigned>(i));
  return data;
}
std::string with_entries(const std::string& entries) { return safetensors("{" + entries + "}", data48()); }
std::string good_safetensors() { return with_entries(R"("__metadata__":{"format":"pt"},)" + kX + "," + kY + "," + kZ); }
// The good file with another entry in place of z.
std::string with_z(const std::string& entry) { return with_entries(kX + "," + kY + "," + entry); }
std::string z_of(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"("z":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::vector<MalformedCase> safetensors_cases() {
  const std::string good = good_safetensors();
  const std::size_t size = good.size();
  std::vector<MalformedCase> cases = {
      {"S01", "", Errc::kTruncated, {"header length"}},
      {"S01", std::string(7, '\0'), Errc::kTruncated, {"header length"}},
      {"S01", le64(2), Errc::kTruncated, {"header"}},
      {"S02", le64(0), Errc::kBadJson, {"header", "end of the text"}},
      {"S02", le64(0) + "{}", Errc::kBadJson, {"header"}},
      {"S03", le64(size - 7) + good.substr(8), Errc::kTruncated, {"header"}},
      {"S04", le64(100'000'001) + good.substr(8), Errc::kLimitExceeded, {"100000001", "100000000"}},
      {"S05", le64(~std::uint64_t{0}) + good.substr(8), Errc::kLimitExceeded, {"18446744073709551615"}},
      {"S05", le64(~std::uint64_t{7}) + good.substr(8), Errc::kLimitExceeded, {"18446744073709551608"}},
      {"S06", with_entries("\"\xFF\":{}"), Errc::kBadUtf8, {"header"}},
      {"S06", with_entries("\"\xC0\x80\":{}"), Errc::kBadUtf8, {}},
      {"S06", with_entries("\"\xED\xA0\x80\":{}"), Errc::kBadUtf8, {}},
      {"S06", with_entries(R"("\ud800":{})"), Errc::kBadUtf8, {"surrogate"}},
      {"S07", safetensors("{", ""), Errc::kBadJson, {"header"}},
      {"S07", safetensors("{}x", ""), Errc::kBadJson, {"the end"}},
      {"S07", safetensors("[]", ""), Errc::kBadJson, {"'{'"}},
      {"S07", safetensors("\"text\"", ""), Errc::kBadJson, {"'{'"}},
      {"S07", with_entries(kX + ","), Errc::kBadJson, {"quoted key"}},
      {"S08", safetensors("{" + kX + "," + kY + "," + kZ + "}\0\0"s, data48()), Errc::kBadJson, {"the end"}},
      {"S10", with_entries(kX + "," + kY + "," + kZ + "," + kX), Errc::kDuplicate, {"\"x\""}},
      {"S10",
       with_z(R"("z":{"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[32,48]})"),
       Errc::kDuplicate,
       {"\"z\"", "dtype"}},
      {"S10",
       with_entries(R"("__metadata__":{"a":"1","a":"2"},)" + kX + "," + kY + "," + kZ),
       Errc::kDuplicate,
       {"\"a\""}},
      {"S10",
       with_entries(R"("__metadata__":{},"__metadata__":{},)" + kX + "," + kY + "," + kZ),
       Errc::kDuplicate,
       {"__metadata__"}},
      {"S11",
       with_entries(R"("__metadata__":{"a":)" + repeat("[", 100'000) + "},"),
       Errc::kDepthExceeded,
       {"__metadata__", "128"}},
      {"S12", with_entries(R"("__metadata__":{"a":1},)" + kX), Errc::kTypeMismatch, {"__metadata__", "string"}},
      {"S12", with_entries(R"("__metadata__":["a"],)" + kX), Errc::kTypeMismatch, {"__metadata__", "object"}},
      {"S12", with_entries(R"("__metadata__":null,)" + kX), Errc::kTypeMismatch, {"__metadata__"}},
      {"S13", with_z(R"("z":{"shape":[4],"data_offsets":[32,48]})"), Errc::kMissingKey, {"\"z\"", "dtype"}},
      {"S13", with_z(R"("z":{"dtype":"F32","data_offsets":[32,48]})"), Errc::kMissingKey, {"\"z\"", "shape"}},
      {"S13", with_z(R"("z":{"dtype":"F32","shape":[4]})"), Errc::kMissingKey, {"\"z\"", "data_offsets"}},
      {"S13", with_z(R"("z":{})"), Errc::kMissingKey, {"\"z\""}},
      {"S13", with_z(R"("z":[])"), Errc::kTypeMismatch, {"\"z\""}},
      {"S14", with_z(z_of("\"F17\"", "[4]", "[32,48]")), Errc::kUnsupported, {"\"z\"", "F17"}},
      {"S14", with_z(z_of("\"f32\"", "[4]", "[32,48]")), Errc::kUnsupported, {"f32"}},
      {"S14", with_z(z_of("32", "[4]", "[32,48]")), Errc::kTypeMismatch, {"dtype"}},
      {"S14", with_z(z_of("null", "[4]", "[32,48]")), Errc::kTypeMismatch, {"dtype"}},
      {"S15", with_z(z_of("\"F32\"", "[-1]", "[32,48]")), Errc::kBadValue, {"\"z\"", "shape", "-1"}},
      {"S15", with_z(z_of("\"F32\"", "[1.5]", "[32,48]")), Errc::kTypeMismatch, {"1.5"}},
      {"S15", with_z(z_of("\"F32\"", "[\"2\"]", "[32,48]")), Errc::kTypeMismatch, {"shape"}},
      {"S15", with_z(z_of("\"F32\"", "[1e3]", "[32,48]")), Errc::kTypeMismatch, {"1e3"}},
      {"S15", with_z(z_of("\"F32\"", "[18446744073709551616]", "[32,48]")), Errc::kBadValue, {"18446744073709551616"}},
      {"S15", with_z(z_of("\"F32\"", "4", "[32,48]")), Errc::kTypeMismatch, {"shape", "list"}},
      {"S16", with_z(z_of("\"F32\"", "[4294967296,4294967296]", "[32,48]")), Errc::kOverflow, {"\"z\""}},
      {"S17", with_z(z_of("\"F32\"", "[4611686018427387905]", "[32,36]")), Errc::kOverflow, {"\"z\""}},
      {"S18", with_z(z_of("\"F32\"", "[1,1,1,1,1,1,1,1,4]", "[32,48]")), Errc::kLimitExceeded, {"9 dimensions", "8"}},
      {"S18",
       with_z(z_of("\"F32\"", "[1" + repeat(",1", 9'999) + "]", "[32,36]")),
       Errc::kLimitExceeded,
       {"10000 dimensions"}},
      {"S20", with_z(z_of("\"F32\"", "[4]", "[]")), Errc::kBadValue, {"0 numbers"}},
      {"S20", with_z(z_of("\"F32\"", "[4]", "[32]")), Errc::kBadValue, {"1 numbers"}},
      {"S20", with_z(z_of("\"F32\"", "[4]", "[32,48,48]")), Errc::kBadValue, {"3 numbers"}},
      {"S20", with_z(z_of("\"F32\"", "[4]", "{}")), Errc::kTypeMismatch, {"data_offsets"}},
      {"S21", with_z(z_of("\"F32\"", "[4]", "[48,32]")), Errc::kBadOffset, {"\"z\"", "48"}},
      {"S22",
       safetensors(R"({"z":{"dtype":"F32","shape":[4],"data_offsets":[4,20]}})", std::string(20, 'a')),
       Errc::kGap,
       {"\"z\"", "expected 0"}},
      {"S23", with_entries(kX + "," + kZ), Errc::kGap, {"\"z\"", "expected 24"}},
      {"S24", with_z(z_of("\"U8\"", "[17]", "[31,48]")), Errc::kOverlap, {"\"z\"", "\"y\""}},
      {"S24",
       with_entries(kX + "," + kY + "," + R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)" + kZ),
       Errc::kOverlap,
       {}},
      {"S25", with_z(z_of("\"U8\"", "[17]", "[32,49]")), Errc::kTruncated, {"\"z\"", "49", "48"}},
      {"S25", good.substr(0, size - 1), Errc::kTruncated, {"\"z\"", "47"}},
      {"S26", good + "!", Errc::kTrailingData, {"1 bytes", "48"}},
      {"S26", good + "PK\x03\x04" + std::string(200, 'z'), Errc::kTrailingData, {"204 bytes"}},
      {"S27", with_z(z_of("\"F32\"", "[3]", "[32,48]")), Errc::kSizeMismatch, {"16 bytes", "12"}},
      {"S27", with_z(z_of("\"F32\"", "[5]", "[32,48]")), Errc::kSizeMismatch, {"20"}},
      {"SF-03",
       with_entries(R"("w":{"dtype":"F32","shape":[32,8],"data_offsets":[0,65536]})"),
       Errc::kSizeMismatch,
       {"65536", "1024"}},
      {"SF-03",
       with_entries(R"("w":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]})"),
       Errc::kSizeMismatch,
       {"4000000"}},
      {"SF-01", le64(~std::uint64_t{4}) + good.substr(8), Errc::kLimitExceeded, {"18446744073709551611"}},
      {"SF-01", le64(size) + good.substr(8), Errc::kTruncated, {"header"}},
      {"SF-05",
       with_entries(kX + "," + kY + R"(,"z":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})"),
       Errc::kOverlap,
       {"\"x\"", "\"z\""}},
      {"SF-07",
       with_z(R"("z":{"dtype":"F32","shape":[4],"data_offsets":[1027757536,1027757552]})"),
       Errc::kTruncated,
       {"\"z\""}},
      {"SF-07", good.substr(0, size - 40), Errc::kTruncated, {}},
      {"S28", with_z(z_of("\"F4\"", "[3]", "[32,33]")), Errc::kBadValue, {"whole bytes"}},
      {"S28", with_z(z_of("\"F6_E2M3\"", "[3]", "[32,34]")), Errc::kBadValue, {"whole bytes"}},
      {"S29",
       with_z(z_of("\"U8\"", "[9007199254740961]", "[32,9007199254740993]")),
       Errc::kTruncated,
       {"9007199254740993"}},
      {"S30", with_z(z_of("\"F32\"", "[4]", "[\"32\",48]")), Errc::kTypeMismatch, {"data_offsets"}},
      {"S30", with_z(z_of("\"F32\"", "[4]", "[32.0,48]")), Errc::kTypeMismatch, {"32.0"}},
      {"S30", with_z(z_of("\"F32\"", "[0]", "[-0,0]")), Errc::kTypeMismatch, {"-0"}},
      {"S31", with_z(z_of("\"F32\"", "[4]", "[32,18446744073709551616]")), Errc::kBadValue, {"18446744073709551616"}},
      {"S33",
       with_z("\"a\\u001b[31m\\nb\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[32,48]}"),
       Errc::kSizeMismatch,
       {"a\\x1B[31m\\x0Ab"}},
      {"S33", with_z("\"" + std::string(257, 'n') + "\":{}"), Errc::kLimitExceeded, {"257 bytes", "256"}},
      {"SF", with_z(R"("z":{"dtype":"F32","shape":[4],"data_offsets":[32,48],"more":1})"), Errc::kBadValue, {"more"}},
  };
  return cases;
}

// What opening a folder in memory gives, with the memory that it took.
struct Opened {
  Result<Checkpoint> result;
  AllocationStats stats;
};
Opened open_folder(const Context& context, const Files& files, const std::string& file = {},
                   std::size_t step = 1 << 20) {
  const auto folder = std::make_shared<MemoryFolder>(files, step);
  const AllocationScope scope;
  auto result = Checkpoint::from_folder(folder, context, {}, "model", file);
  return {std::move(result), scope.stats()};
}

void check_error(const corbel::Status& status, Errc code, const std::vector<std::string>& says) {
  const std::string message(status.message());
  CAPTURE(message);
  CHECK(std::string(errc_name(status.code())) == errc_name(code));
  CHECK(message_fault(message).empty());
  for (const std::string& part : says) {
    CAPTURE(part);
    CHECK(message.find(part) != std::string::npos);
  }
}

std::string text_of(const Result<std::vector<std::byte>>& bytes) {
  REQUIRE(bytes.ok());
  return {reinterpret_cast<const char*>(bytes->data()), bytes->size()};
}

const std::string kConfig = R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"vocab_size":10})";

Files good_folder() { return {{"model.safetensors", good_safetensors()}, {"config.json", kConfig}}; }

std::string shard(const std::vector<std::string>& names) {
  corbel::SafetensorsWriter writer;
  for (const std::string& name : names) {
    REQUIRE(writer.add_tensor(name, {{2}}, "F32", std::vector<std::byte>(8)).ok());
  }
  return text_of(writer.to_bytes());
}

const std::string kIndexName = "model.safetensors.index.json";

Files sharded_folder() {
  return {{"a.safetensors", shard({"x", "y"})},
          {"b.safetensors", shard({"z"})},
          {"config.json", kConfig},
          {kIndexName, R"({"metadata":{"total_size":24},"weight_map":{"x":"a.safetensors","y":"a.safetensors",)"
                       R"("z":"b.safetensors"}})"}};
}
Files with_index(const std::string& index) {
  Files files = sharded_folder();
  files[kIndexName] = index;
  return files;
}
Files with_shard_name(const std::string& quoted_name) {
  return with_index(R"({"weight_map":{"x":)" + quoted_name + "}}");
}

struct FolderCase {
  std::string id;
  Files files;
  Errc code;
  std::vector<std::string> says;
  std::string file = {};
};

std::vector<FolderCase> index_cases() {
  std::vector<FolderCase> cases;
  for (const char* name :
       {"../x.safetensors", "a/../../x.safetensors", "/abs.safetensors", "..\\\\x.safetensors", "x/",
        "sub/x.safetensors", "C:\\\\x.safetensors", "C:x.safetensors", "x\\u0000.safetensors", ".."}) {
    cases.push_back(
        {"I01", with_shard_name("\""s + name + "\""), Errc::kPathEscape, {"weight_map", "\"x\"", kIndexName}});
  }
  cases.push_back({"I01", with_shard_name("\"\""), Errc::kBadValue, {"names no file"}});
  cases.push_back({"I01", with_shard_name("\".\""), Errc::kBadValue, {"names no file"}});
  cases.push_back({"I01", with_shard_name("\"" + std::string(300, 'a') + ".safetensors\""), Errc::kBadValue, {"255"}});
  cases.push_back(
      {"I01", with_shard_name("\"pytorch_model-00001-of-00002.bin\""), Errc::kUnsupported, {".safetensors"}});
  Files missing = sharded_folder();
  missing.erase("b.safetensors");
  cases.push_back({"I03", missing, Errc::kIoOpen, {"b.safetensors"}});
  Files elsewhere = with_index(
      R"({"weight_map":{"x":"a.safetensors","y":"a.safetensors","z":"a.safetensors","z2":"b.safetensors"}})");
  cases.push_back({"I03", elsewhere, Errc::kMissingTensor, {"\"z\"", "a.safetensors", "b.safetensors"}});
  Files nowhere = with_index(R"({"weight_map":{"x":"a.safetensors","q":"b.safetensors"}})");
  cases.push_back({"I03", nowhere, Errc::kMissingTensor, {"\"q\"", "b.safetensors"}});
  Files twice = sharded_folder();
  twice["b.safetensors"] = shard({"x", "z"});
  cases.push_back({"I03", twice, Errc::kDuplicate, {"\"x\"", "a.safetensors", "b.safetensors"}});
  cases.push_back(
      {"I03", with_index(R"({"weight_map":{"x":"a.safetensors","x":"b.safetensors"}})"), Errc::kDuplicate, {"\"x\""}});
  std::string many = R"({"weight_map":{)";
  for (int i = 0; i < 1'000'000; ++i) many += "\"t" + std::to_string(i) + "\":\"a.safetensors\",";
  cases.push_back({"I04", with_index(many + R"("x":"a.safetensors"}})"), Errc::kLimitExceeded, {"524288"}});
  std::string files = R"({"weight_map":{)";
  for (int i = 0; i < 50'000; ++i) files += "\"t" + std::to_string(i) + "\":\"" + std::to_string(i) + ".safetensors\",";
  cases.push_back({"I04", with_index(files + R"("x":"a.safetensors"}})"), Errc::kLimitExceeded, {"16384"}});
  cases.push_back({"I05", with_index("weight_map"), Errc::kBadJson, {kIndexName}});
  cases.push_back({"I05", with_index("[]"), Errc::kTypeMismatch, {"object"}});
  cases.push_back({"I05", with_index("{}"), Errc::kMissingKey, {"weight_map"}});
  cases.push_back({"I05", with_index(R"({"weight_map":[]})"), Errc::kTypeMismatch, {"weight_map"}});
  cases.push_back({"I05", with_index(R"({"weight_map":{"x":1}})"), Errc::kTypeMismatch, {"string"}});
  cases.push_back({"I05", with_index(R"({"weight_map":{},"weight_map":{}})"), Errc::kDuplicate, {"weight_map"}});
  cases.push_back({"I05", with_index(R"({"metadata":)" + repeat("[", 200) + "}"), Errc::kDepthExceeded, {"128"}});
  Files swapped = sharded_folder();
  std::swap(swapped["a.safetensors"], swapped["b.safetensors"]);
  cases.push_back({"S37", swapped, Errc::kMissingTensor, {"\"x\"", "b.safetensors"}});
  return cases;
}

std::vector<FolderCase> config_cases() {
  const auto with = [](const std::string& config) {
    Files files = good_folder();
    files["config.json"] = config;
    return files;
  };
  Files none = good_folder();
  none.erase("config.json");
  std::vector<FolderCase> cases = {
      {"C01", none, Errc::kIoOpen, {"config.json"}},
      {"C01", with(""), Errc::kBadJson, {"config.json"}},
      {"C01", with("[]"), Errc::kTypeMismatch, {"config.json", "object"}},
      {"C01", with("\xEF\xBB\xBF{}"), Errc::kBadJson, {"config.json", "byte 0"}},
      {"C01", with("{} // comment"), Errc::kBadJson, {"config.json"}},
      {"C01", with(R"({"a":1,})"), Errc::kBadJson, {"config.json"}},
      {"C01", with(R"({"a":NaN})"), Errc::kBadJson, {"config.json", "byte 5"}},
      {"C01",
       with("{\"a\":\"" + std::string(64u << 20, 'a') + "\"}"),
       Errc::kLimitExceeded,
       {"config.json", "16777216"}},
      {"C02",
       with("{\"a\":" + repeat("[", 128) + repeat("]", 128) + "}"),
       Errc::kDepthExceeded,
       {"config.json", "128"}},
      {"C03", with(R"({"a":1,"a":1})"), Errc::kDuplicate, {"config.json", "\"a\""}},
  };
  Files pickle = {{"config.json", kConfig}, {"pytorch_model.bin", "PK\x03\x04"}};
  cases.push_back({"pickle", pickle, Errc::kUnsupported, {"pickle", "never read", "safetensors"}});
  cases.push_back({"pickle", pickle, Errc::kUnsupported, {"pickle", "safetensors"}, "pytorch_model.bin"});
  cases.push_back({"empty", {}, Errc::kIoOpen, {"no model"}});
  cases.push_back({"no index",
                   {{"config.json", kConfig}, {"a.safetensors", shard({"x"})}, {"b.safetensors", shard({"y"})}},
                   Errc::kIoOpen,
                   {kIndexName}});
  return cases;
}

// One part of a split file.
corbel::GgufWriter part(std::uint64_t number, std::uint64_t count, std::uint64_t tensors,
                        const std::vector<std::string>& names, const std::string& architecture = "llama") {
  corbel::GgufWriter writer;
  if (!architecture.empty())
    writer.metadata().set("general.architecture", corbel::MetaValue::from_string(architecture));
  writer.metadata().set("split.no", corbel::MetaValue::from_uint(number, corbel::MetaType::kU16));
  writer.metadata().set("split.count", corbel::MetaValue::from_uint(count, corbel::MetaType::kU16));
  writer.metadata().set("split.tensors.count",
                        corbel::MetaValue::from_int(static_cast<std::int64_t>(tensors), corbel::MetaType::kI32));
  for (const std::string& name : names) {
    const float values[] = {static_cast<float>(name.back()), 2};
    REQUIRE(writer.add_f32(name, {{2}}, values).ok());
  }
  return writer;
}
std::string part_bytes(std::uint64_t number, std::uint64_t count, std::uint64_t tensors,
                       const std::vector<std::string>& names, const std::string& architecture = "llama") {
  return text_of(part(number, count, tensors, names, architecture).to_bytes());
}

Files split_folder() {
  return {{"m-00001-of-00003.gguf", part_bytes(0, 3, 3, {})},
          {"m-00002-of-00003.gguf", part_bytes(1, 3, 3, {"a", "b"}, "")},
          {"m-00003-of-00003.gguf", part_bytes(2, 3, 3, {"c"}, "")}};
}

std::vector<FolderCase> split_cases() {
  const std::string second = "m-00002-of-00003.gguf";
  const std::string third = "m-00003-of-00003.gguf";
  const auto with = [&](const std::string& file, const std::string& bytes) {
    Files files = split_folder();
    files[file] = bytes;
    return files;
  };
  Files missing = split_folder();
  missing.erase(second);
  Files renamed = {{"m.gguf", part_bytes(0, 3, 3, {"a", "b", "c"})}};
  Files two_names = split_folder();
  two_names["m-00001-of-00002.gguf"] = two_names["m-00001-of-00003.gguf"];
  Files swapped = split_folder();
  std::swap(swapped[second], swapped[third]);
  const std::string first = "m-00001-of-00003.gguf";
  return {
      {"G108", with(first, part_bytes(0, 0, 3, {})), Errc::kBadValue, {"split.count", "0"}},
      {"G108", with(first, part_bytes(0, 65535, 3, {})), Errc::kBadValue, {"split.count", "65535", "3"}, first},
      {"G108", with(second, part_bytes(3, 3, 3, {"a", "b"}, "")), Errc::kBadValue, {second, "split.no", "3"}},
      {"G108", with(second, part_bytes(1, 4, 3, {"a", "b"}, "")), Errc::kBadValue, {second, "split.count", "4"}},
      {"G108", missing, Errc::kIoOpen, {second}},
      {"G108", swapped, Errc::kBadValue, {"split.no", "2", "1"}},
      {"G108", with(third, part_bytes(2, 3, 3, {"a"}, "")), Errc::kDuplicate, {"\"a\"", second, third}},
      {"G108", with(third, part_bytes(2, 3, 3, {"c"}, "qwen2")), Errc::kShapeMismatch, {third, "another model"}},
      {"G108", with(third, part_bytes(2, 3, 7, {"c"}, "")), Errc::kShapeMismatch, {third, "another model"}},
      {"G108", with(third, part_bytes(2, 3, 3, {"c", "d"}, "")), Errc::kShapeMismatch, {"4 tensors", "3"}},
      {"G108", with(third, part_bytes(2, 3, 3, {}, "")), Errc::kShapeMismatch, {"2 tensors"}},
      {"G108", renamed, Errc::kUnsupported, {"split into 3", "-00001-of-00003.gguf"}},
      {"G108", two_names, Errc::kBadValue, {"split.count"}, "m-00001-of-00002.gguf"},
      {"G108", with(third, part_bytes(2, 3, 3, {"c"}, "").substr(0, 40)), Errc::kTruncated, {third}},
      {"G108",
       {{"m-00004-of-00003.gguf", part_bytes(3, 3, 3, {"c"})}},
       Errc::kBadValue,
       {"part 4 of 3"},
       "m-00004-of-00003.gguf"},
  };
}

void check_folder_cases(const std::vector<FolderCase>& cases, const Files& good) {
  const Context context;
  for (const FolderCase& wrong : cases) {
    CAPTURE(wrong.id);
    const Opened opened = open_folder(context, wrong.files, wrong.file);
    REQUIRE_FALSE(opened.result.ok());
    check_error(opened.result.status(), wrong.code, wrong.says);
    CHECK(std::string(opened.result.status().message()).substr(0, 5) == "model");
    CHECK(within_memory(opened.stats, MemoryFolder(wrong.files).total_bytes()));
    const Opened after = open_folder(context, good);
    REQUIRE(after.result.ok());
    CHECK(usable(*after.result));
  }
}

}  // namespace

TEST_CASE("safetensors malformed: each named case has exactly its error, from every source") {
  const Context context;
  const std::string good = good_safetensors();
  const std::string path =
      (std::filesystem::temp_directory_path() / ("corbel-test-" + std::to_string(::getpid()) + ".safetensors"))
          .string();
  const std::vector<MalformedCase> cases = safetensors_cases();
  CHECK(cases.size() > 60);
  for (const MalformedCase& wrong : cases) {
    CAPTURE(wrong.id);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << wrong.file;
    const std::vector<std::pair<std::string, std::function<Result<Checkpoint>()>>> sources = {
        {"f.safetensors", [&] { return Checkpoint::from_memory(bytes_of(wrong.file), context, {}, "f.safetensors"); }},
        {"f.safetensors",
         [&] {
           return Checkpoint::from_reader(std::make_shared<OneByteReader>(wrong.file), context, {}, "f.safetensors");
         }},
        {path, [&] { return Checkpoint::open(path, context); }},
        {path, [&] { return Checkpoint::open(path, context, {.map = true}); }},
    };
    std::string first;
    for (const auto& [name, open] : sources) {
      const AllocationScope scope;
      const Result<Checkpoint> result = open();
      const AllocationStats stats = scope.stats();
      REQUIRE_FALSE(result.ok());
      check_error(result.status(), wrong.code, wrong.says);
      const std::string message(result.status().message());
      REQUIRE(message.substr(0, name.size() + 2) == name + ": ");
      if (first.empty()) first = message.substr(name.size() + 2);
      CHECK(message.substr(name.size() + 2) == first);
      // The reader itself holds a copy of the file.
      CHECK(within_memory(stats, 2 * wrong.file.size()));
    }
    const auto after = Checkpoint::from_memory(bytes_of(good), context, {}, "good");
    REQUIRE(after.ok());
    CHECK(usable(*after));
  }
  std::filesystem::remove(path);
}

TEST_CASE("safetensors malformed: what the format allows loads") {
  const Context context;
  const auto loads = [&](const std::string& id, const std::string& file) {
    CAPTURE(id);
    const auto checkpoint = Checkpoint::from_memory(bytes_of(file), context, {}, "f.safetensors");
    CAPTURE(std::string(checkpoint.status().message()));
    REQUIRE(checkpoint.ok());
    CHECK(usable(*checkpoint));
    return *checkpoint;
  };
  const std::string entries = kX + "," + kY + "," + kZ;
  CHECK(loads("S09", safetensors(" \n{" + entries + "}\t  ", data48())).tensors().size() == 3);
  CHECK(loads("any order", with_entries(kZ + "," + kX + "," + kY)).tensors()[0].name == "z");
  CHECK(loads("no tensors", safetensors("{}", "")).tensors().empty());
  CHECK(loads("S19", with_entries(entries + R"(,"e":{"dtype":"F32","shape":[2,0],"data_offsets":[24,24]})"))
            .find_tensor("e")
            ->bytes == 0);
  CHECK(loads("scalar", with_entries(kX + "," + kY +
                                     R"(,"z":{"dtype":"F64","shape":[],"data_offsets":[32,40]},)"
                                     R"("i":{"dtype":"I64","shape":[1],"data_offsets":[40,48]})"))
            .find_tensor("z")
            ->shape.empty());
  const Checkpoint odd =
      loads("S33", with_z("\"a\\u0000\\u001b[31m\\n\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[32,48]}"));
  CHECK(odd.find_tensor("a\0\x1b[31m\n"s) != nullptr);
  CHECK(loads("S36", safetensors(R"({"n":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "\0\0\xC0\x7F"s))
            .tensors()
            .size() == 1);
  const Checkpoint good = loads("good", good_safetensors());
  CHECK(good.format() == corbel::CheckpointFormat::kSafetensors);
  CHECK(*good.metadata().get_string("format") == "pt");
  CHECK(good.find_tensor("x")->shape == std::vector<std::uint64_t>{2, 3});
  CHECK(std::string(good.find_tensor("y")->type_name) == "BF16");
}

TEST_CASE("safetensors malformed: S34: truncation and byte sweeps end in an error or a legal file") {
  const Context context;
  const std::string good = good_safetensors();
  const std::size_t head = good.size() - 48;
  for (std::size_t length = 0; length < good.size(); ++length) {
    const auto result = Checkpoint::from_memory(bytes_of(good).first(length), context, {}, "f.safetensors");
    REQUIRE_FALSE(result.ok());
    CAPTURE(length, std::string(result.status().message()));
    CHECK(std::string(errc_name(result.status().code())) == "truncated");
  }
  std::size_t loaded = 0;
  for (std::size_t at = 0; at < head; ++at) {
    const auto old = static_cast<unsigned char>(good[at]);
    std::vector<unsigned> values = {0, 255, old + 1u, old - 1u};
    for (unsigned bit = 0; bit < 8; ++bit) values.push_back(old ^ (1u << bit));
    for (const unsigned value : values) {
      std::string file = good;
      file[at] = static_cast<char>(value & 0xFFu);
      const AllocationScope scope;
      const auto result = Checkpoint::from_memory(bytes_of(file), context, {}, "f.safetensors");
      if (!within_memory(scope.stats(), file.size())) FAIL("memory at byte " << at);
      if (result.ok()) {
        ++loaded;
        if (!usable(*result)) FAIL("byte " << at << " as " << value << " loads and cannot be read");
      } else if (!message_fault(result.status().message()).empty() || result.status().code() == Errc::kInternal) {
        FAIL("byte " << at << " as " << value << ": " << result.status().message());
      }
    }
  }
  CHECK(loaded > 0);  // a changed letter of a name
  CHECK(loaded < 12 * head / 2);
}

TEST_CASE("safetensors malformed: large headers end early, and small stacks are enough") {
  const Context context;
  // S32: a million tensors of no size; the table ends at the limit.
  std::string entries;
  for (int i = 0; i < 1'000'000; ++i) {
    entries += "\"" + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)";
  }
  const std::string file = safetensors("{" + entries + "\"x\":{}}", "");
  const AllocationScope scope;
  const auto result = Checkpoint::from_memory(bytes_of(file), context, {}, "f.safetensors");
  const AllocationStats stats = scope.stats();
  REQUIRE_FALSE(result.ok());
  check_error(result.status(), Errc::kLimitExceeded, {"524288"});
  CHECK(stats.largest <= file.size() + (1u << 20));
  // Fewer than the limit, but a table that is larger than the file.
  std::string half = entries.substr(0, entries.size() / 3);
  half.erase(half.rfind("},") + 1);
  const std::string wide = safetensors("{" + half + "}", "");
  CHECK(Checkpoint::from_memory(bytes_of(wide), context, {}, "f.safetensors").status().code() == Errc::kLimitExceeded);

  std::size_t right = 0;
  const std::vector<MalformedCase> cases = safetensors_cases();
  REQUIRE(on_small_stack([&] {
    const Context own;
    for (const MalformedCase& wrong : cases) {
      const auto opened = Checkpoint::from_memory(bytes_of(wrong.file), own, {}, "f.safetensors");
      right += opened.status().code() == wrong.code ? 1u : 0u;
    }
  }));
  CHECK(right == cases.size());
}

TEST_CASE("index malformed: each named case has exactly its error") {
  check_folder_cases(index_cases(), sharded_folder());
  const Context context;
  const Opened good = open_folder(context, sharded_folder(), {}, 1);
  REQUIRE(good.result.ok());
  CHECK(good.result->files().size() == 2);
  CHECK(good.result->find_tensor("z")->file == 1);
  CHECK(open_folder(context, sharded_folder(), kIndexName).result.ok());
  // SF-09: a tensor that the index does not name and a shard has.
  const Opened unnamed =
      open_folder(context, with_index(R"({"weight_map":{"x":"a.safetensors","z":"b.safetensors"}})"), kIndexName);
  REQUIRE(unnamed.result.ok());
  CHECK(unnamed.result->find_tensor("y") != nullptr);
  CHECK(usable(*unnamed.result));
}

TEST_CASE("what is no model file says what it is") {
  const Context context;
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n";
  const std::string page = "<!DOCTYPE html><html><body>Not found</body></html>";
  for (const char* name : {"m.gguf", "m.safetensors"}) {
    for (const auto& [bytes, says] : {std::pair(pointer, "Git LFS"), std::pair(page, "web page")}) {
      CAPTURE(name, bytes);
      const Errc code = name[2] == 'g' ? Errc::kBadMagic : Errc::kLimitExceeded;
      check_error(Checkpoint::from_memory(bytes_of(bytes), context, {}, name).status(), code, {name, says});
      const auto reader = std::make_shared<OneByteReader>(bytes);
      check_error(Checkpoint::from_reader(reader, context, {}, name).status(), code, {name, says});
    }
  }
  Files files = sharded_folder();
  files.erase("b.safetensors");
  check_error(open_folder(context, files).result.status(), Errc::kIoOpen, {"b.safetensors", "download complete?"});
  check_error(Checkpoint::from_memory(bytes_of(good_safetensors()).first(60), context, {}, "m.safetensors").status(),
              Errc::kTruncated, {"download complete?"});
  // What reads images lies beside the model.
  Files two = {{"m.gguf", part_bytes(0, 1, 0, {"a"})}, {"mmproj-m.gguf", part_bytes(0, 1, 0, {"b"})}};
  const Opened model = open_folder(context, two);
  REQUIRE(model.result.ok());
  CHECK(model.result->find_tensor("a") != nullptr);
}

TEST_CASE("index malformed: I02: links and files that are no files") {
  namespace fs = std::filesystem;
  const Context context;
  const fs::path root = fs::temp_directory_path() / ("corbel-links-" + std::to_string(::getpid()));
  fs::create_directories(root / "model");
  const auto write = [](const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  };
  for (const auto& [name, bytes] : sharded_folder()) write(root / "model" / name, bytes);
  const fs::path shard_path = root / "model" / "b.safetensors";
  const auto open = [&](const corbel::OpenOptions& options = {}) {
    return Checkpoint::open((root / "model").string(), context, options);
  };
  CHECK(open().ok());
  fs::rename(shard_path, root / "outside.safetensors");
  fs::create_symlink(root / "outside.safetensors", shard_path);
  check_error(open().status(), Errc::kPathEscape, {"b.safetensors", "link"});
  check_error(open({.map = true}).status(), Errc::kPathEscape, {"b.safetensors"});
  CHECK(open({.follow_links = true}).ok());
  fs::remove(shard_path);
  fs::create_symlink("b2", shard_path);
  write(root / "model" / "b2", shard({"z"}));
  CHECK(open().ok());  // a link inside the folder
  fs::remove(shard_path);
  fs::create_directory(shard_path);
  CHECK(open().status().code() == Errc::kIoOpen);
  fs::remove(shard_path);
  REQUIRE(::mkfifo(shard_path.c_str(), 0600) == 0);
  CHECK(open().status().code() == Errc::kIoOpen);
  fs::remove(shard_path);
  fs::create_symlink(shard_path.filename(), shard_path);
  CHECK(open().status().code() == Errc::kIoOpen);
  // As the cache of the Hub has it: links from a snapshot into the blobs of the same model.
  const fs::path snapshot = root / "models--o--n" / "snapshots" / "rev";
  fs::create_directories(snapshot);
  fs::create_directories(root / "models--o--n" / "blobs");
  for (const auto& [name, bytes] : good_folder()) {
    write(root / "models--o--n" / "blobs" / name, bytes);
    fs::create_symlink(fs::path("../../blobs") / name, snapshot / name);
  }
  CHECK(Checkpoint::open(snapshot.string(), context).ok());
  CHECK(Checkpoint::open((snapshot / "model.safetensors").string(), context).ok());
  fs::remove_all(root);
}

TEST_CASE("config malformed: each named case has exactly its error") {
  check_folder_cases(config_cases(), good_folder());
  struct Log {
    std::string lines;
  } log;
  corbel::ContextOptions options;
  options.log = {[](void* user, corbel::LogLevel level, std::string_view line) noexcept {
                   if (level == corbel::LogLevel::kWarning) static_cast<Log*>(user)->lines += line;
                 },
                 &log};
  const Context context(options);
  Files custom = good_folder();
  custom["config.json"] = R"({"model_type":"llama","auto_map":{"AutoModel":"code.Model"},"trust_remote_code":true})";
  CHECK(open_folder(context, custom).result.ok());  // C12
  CHECK(log.lines.find("auto_map") != std::string::npos);
  CHECK(log.lines.find("never run") != std::string::npos);
}

TEST_CASE("config malformed: C13: generation_config.json") {
  const Context context;
  struct GenerationCase {
    std::string text;
    Errc code;
    std::vector<std::string> says;
  };
  const std::vector<GenerationCase> cases = {
      {R"({"eos_token_id":10})", Errc::kVocabInvalid, {"eos_token_id", "10"}},
      {R"({"eos_token_id":[1,99]})", Errc::kVocabInvalid, {"eos_token_id", "99"}},
      {R"({"eos_token_id":-2})", Errc::kVocabInvalid, {"-2"}},
      {R"({"eos_token_id":"</s>"})", Errc::kTypeMismatch, {"eos_token_id"}},
      {R"({"eos_token_id":[)" + repeat("1,", 1'000'000) + "1]}", Errc::kLimitExceeded, {"1000001", "1024"}},
      {R"({"temperature":NaN})", Errc::kBadJson, {"generation_config.json"}},
      {R"({"temperature":-1})", Errc::kBadValue, {"temperature", "-1"}},
      {R"({"top_p":7})", Errc::kBadValue, {"top_p", "7"}},
      {R"({"min_p":-0.5})", Errc::kBadValue, {"min_p"}},
      {R"({"top_k":1.5})", Errc::kTypeMismatch, {"top_k"}},
      {R"({"top_k":-1})", Errc::kBadValue, {"top_k"}},
      {R"({"repetition_penalty":0})", Errc::kBadValue, {"repetition_penalty"}},
      {R"({"do_sample":1})", Errc::kTypeMismatch, {"do_sample"}},
      {"[]", Errc::kTypeMismatch, {"object"}},
      {"{", Errc::kBadJson, {"generation_config.json"}},
  };
  for (const GenerationCase& wrong : cases) {
    Files files = good_folder();
    files["generation_config.json"] = wrong.text;
    const Opened opened = open_folder(context, files);
    REQUIRE(opened.result.ok());
    const AllocationScope scope;
    const auto defaults = corbel::read_generation_defaults(*opened.result);
    const AllocationStats stats = scope.stats();
    CAPTURE(wrong.text.substr(0, 60));
    REQUIRE_FALSE(defaults.ok());
    check_error(defaults.status(), wrong.code, wrong.says);
    CHECK(std::string(defaults.status().message()).find("model: generation_config.json") == 0);
    CHECK(stats.largest <= (1u << 20) + wrong.text.size());
  }
  Files files = good_folder();
  files["config.json"] = R"({"vocab_size":10,"eos_token_id":3,"bos_token_id":1})";
  files["generation_config.json"] =
      R"({"eos_token_id":[7,-1,2,7],"pad_token_id":-1,"do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0})";
  const auto good = corbel::read_generation_defaults(*open_folder(context, files).result);
  REQUIRE(good.ok());
  CHECK(good->eos_ids == std::vector<std::uint32_t>{7, 2});  // the file's own list goes before config.json
  CHECK(good->bos_id == 1u);
  CHECK_FALSE(good->pad_id.has_value());
  CHECK(good->do_sample == true);
  CHECK(good->temperature == 0.6);
  CHECK(good->top_k == 20u);
  CHECK(good->min_p == 0.0);
  CHECK_FALSE(good->repetition_penalty.has_value());
}

TEST_CASE("generation: the keys of a GGUF file") {
  const Context context;
  const auto read = [&](const char* key, corbel::MetaValue value) {
    corbel::GgufWriter writer;
    writer.metadata().set("general.sampling.temp", corbel::MetaValue::from_float(0.5));
    writer.metadata().set("general.sampling.penalty_repeat", corbel::MetaValue::from_float(1.25));
    writer.metadata().set("tokenizer.ggml.eos_token_id", corbel::MetaValue::from_uint(3));
    writer.metadata().set("general.architecture", corbel::MetaValue::from_string("llama"));
    writer.metadata().set("llama.vocab_size", corbel::MetaValue::from_uint(10));
    if (key != nullptr) writer.metadata().set(key, std::move(value));
    const std::string file = text_of(writer.to_bytes());
    return corbel::read_generation_defaults(Checkpoint::from_memory(bytes_of(file), context, {}, "m").value());
  };
  const auto good = read("general.sampling.top_k", corbel::MetaValue::from_int(20));
  REQUIRE(good.ok());
  CHECK(good->temperature == 0.5);
  CHECK(good->repetition_penalty == 1.25);
  CHECK(good->top_k == 20u);
  CHECK(good->eos_ids == std::vector<std::uint32_t>{3});
  CHECK_FALSE(good->top_p.has_value());
  CHECK(read("tokenizer.ggml.eot_token_id", corbel::MetaValue::from_uint(2))->eos_ids ==
        std::vector<std::uint32_t>{3, 2});
  CHECK(read("tokenizer.ggml.eom_token_id", corbel::MetaValue::from_uint(3))->eos_ids == std::vector<std::uint32_t>{3});
  CHECK(read("general.sampling.top_k", corbel::MetaValue::from_int(-1))->top_k == 0u);  // all tokens
  for (const auto& [key, value, code] : std::vector<std::tuple<const char*, corbel::MetaValue, Errc>>{
           {"general.sampling.top_k", corbel::MetaValue::from_string("many"), Errc::kTypeMismatch},
           {"general.sampling.top_p", corbel::MetaValue::from_float(1.5), Errc::kBadValue},
           {"general.sampling.temp", corbel::MetaValue::from_float(std::numeric_limits<double>::quiet_NaN()),
            Errc::kBadValue},
           {"general.sampling.min_p", corbel::MetaValue::from_string("x"), Errc::kTypeMismatch},
           {"tokenizer.ggml.bos_token_id", corbel::MetaValue::from_float(1), Errc::kTypeMismatch},
           {"tokenizer.ggml.eot_token_id", corbel::MetaValue::from_uint(10), Errc::kVocabInvalid},
           {"tokenizer.ggml.padding_token_id", corbel::MetaValue::from_uint(10), Errc::kVocabInvalid},
       }) {
    CAPTURE(key);
    const auto wrong = read(key, value);
    REQUIRE_FALSE(wrong.ok());
    check_error(wrong.status(), code, {"m: "});
  }
}

TEST_CASE("split gguf: parts become one checkpoint, whichever is named") {
  const Context context;
  for (const char* file : {"", "m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    CAPTURE(file);
    const Opened opened = open_folder(context, split_folder(), file, 1);
    REQUIRE(opened.result.ok());
    const Checkpoint& checkpoint = *opened.result;
    CHECK(checkpoint.files().size() == 3);
    CHECK(checkpoint.tensors().size() == 3);
    CHECK(*checkpoint.metadata().get_string("general.architecture") == "llama");
    for (const char* name : {"a", "b", "c"}) {
      REQUIRE(checkpoint.find_tensor(name) != nullptr);
      CHECK(checkpoint.read_f32(*checkpoint.find_tensor(name)).value()[0] == static_cast<float>(*name));
    }
  }
  check_folder_cases(split_cases(), split_folder());
}

TEST_CASE("json: no allocation is larger than the text and a MiB, also near the limit of a document") {
  const std::size_t size = 16u << 20;
  std::string keys = "{";
  for (int i = 0; keys.size() < size; ++i) keys += "\"" + std::to_string(i) + "\":0,";
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"numbers", "[" + repeat("1,", size / 2) + "1]"},
      {"empty lists", "[" + repeat("[],", size / 3) + "1]"},
      {"lists", "[" + repeat("[1],", size / 4) + "1]"},
      {"keys", keys + "\"last\":0}"},
      {"strings", "[" + repeat("\"\",", size / 3) + "1]"},
      {"one text", "\"" + std::string(size - 8, 'a') + "\""},
      {"one text with escapes",
       "\"" + std::string(size / 2, 'a') + repeat("\\n", 64) + std::string(size / 3, 'a') + "\""},
  };
  for (const auto& [name, text] : texts) {
    CAPTURE(name);
    const AllocationScope scope;
    const auto value = corbel::json::parse(text);
    const AllocationStats stats = scope.stats();
    REQUIRE(value.ok());
    CAPTURE(stats.largest, stats.peak, text.size());
    CHECK(stats.largest <= text.size() + (1u << 20));
    CHECK(static_cast<double>(stats.peak) < 64.0 * static_cast<double>(text.size()));
  }
}
