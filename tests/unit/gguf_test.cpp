// GGUF: what is read from a good file, from every kind of source; the writer as the exact inverse of the reader.
#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/checkpoint/gguf_writer.hpp>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "support/build_kind.hpp"
#include "support/gguf_builder.hpp"
#include "support/gguf_sources.hpp"
#include "support/support.hpp"

using namespace corbel_test;
using corbel::Checkpoint;
using corbel::Context;
using corbel::Errc;
using corbel::GgufWriter;
using corbel::Metadata;
using corbel::MetaType;
using corbel::MetaValue;
using corbel::TensorInfo;

namespace {

std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Writes again what was read.
std::string rewritten(const Checkpoint& checkpoint, std::span<const std::byte> file) {
  GgufWriter writer(checkpoint.format_version());
  for (const Metadata::Entry& entry : checkpoint.metadata().entries()) writer.metadata().set(entry.key, entry.value);
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    const auto bytes = file.subspan(tensor.offset, tensor.bytes);
    REQUIRE(writer.add_tensor(tensor.name, tensor.shape, tensor.ggml_type, {bytes.begin(), bytes.end()}).ok());
  }
  const auto result = writer.to_bytes();
  REQUIRE(result.ok());
  return as_text(*result);
}

void check_good_file(const Checkpoint& checkpoint, const std::string& file) {
  const Metadata& metadata = checkpoint.metadata();
  CHECK(checkpoint.format_version() == 3);
  CHECK(checkpoint.file_bytes() == file.size());
  REQUIRE(metadata.entries().size() == 17);
  CHECK(metadata.entries()[0].key == "general.architecture");
  CHECK(*metadata.get_string("general.architecture") == "llama");
  CHECK(*metadata.get_uint("test.u8") == 200);
  CHECK(*metadata.find("test.i8")->as_int() == -1);
  CHECK(*metadata.get_uint("test.u16") == 65535);
  CHECK(*metadata.find("test.i16")->as_int() == -32768);
  CHECK(*metadata.get_uint("test.u32") == 0xFFFFFFFFu);
  CHECK(*metadata.find("test.i32")->as_int() == -2);
  CHECK(*metadata.get_float("test.f32") == 1.5);
  CHECK(*metadata.get_bool("test.bool"));
  CHECK(*metadata.get_uint("test.u64") == ~std::uint64_t{0});
  CHECK(metadata.find("test.u64")->as_int().status().code() == Errc::kBadValue);
  CHECK(*metadata.find("test.i64")->as_int() == -1);
  CHECK(*metadata.get_float("test.f64") == 2.5);
  const MetaValue* strings = metadata.find("test.strings");
  REQUIRE(strings != nullptr);
  REQUIRE(strings->size() == 3);
  CHECK(strings->element_type() == MetaType::kString);
  CHECK(strings->string_at(0) == "a");
  CHECK(strings->string_at(1).empty());
  CHECK(strings->string_at(2) == "\xC3\xA4\xFF");
  CHECK(strings->string_at(3).empty());
  CHECK(metadata.find("test.floats")->float_at(1) == -2.0);
  CHECK(metadata.find("test.bools")->int_at(0) == 1);
  CHECK(metadata.find("test.bools")->int_at(1) == 0);
  CHECK(metadata.find("test.empty")->size() == 0);
  CHECK(metadata.find("test.absent") == nullptr);

  REQUIRE(checkpoint.tensors().size() == 5);
  const TensorInfo* embedding = checkpoint.find_tensor("token_embd.weight");
  REQUIRE(embedding == &checkpoint.tensors()[0]);
  CHECK(embedding->shape == std::vector<std::uint64_t>{4, 8});
  CHECK(embedding->dtype == corbel::DType::kF32);
  CHECK(embedding->bytes == 128);
  CHECK(checkpoint.find_tensor("blk.0.ffn_up.weight")->shape == std::vector<std::uint64_t>{2, 1, 256});
  CHECK(checkpoint.find_tensor("blk.0.ffn_up.weight")->num_elements() == 512);
  CHECK(checkpoint.find_tensor("missing") == nullptr);
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    CAPTURE(tensor.name);
    CHECK(tensor.supported);
    std::string whole(tensor.bytes, 'x');
    REQUIRE(checkpoint.read(tensor, 0, std::as_writable_bytes(std::span(whole))).ok());
    CHECK(whole == file.substr(tensor.offset, tensor.bytes));
    std::string part(5, 'x');
    REQUIRE(checkpoint.read(tensor, tensor.bytes - 5, std::as_writable_bytes(std::span(part))).ok());
    CHECK(part == whole.substr(whole.size() - 5));
    CHECK(checkpoint.read(tensor, tensor.bytes - 4, std::as_writable_bytes(std::span(part))).code() ==
          Errc::kInvalidArgument);
    CHECK(checkpoint.read(tensor, ~std::uint64_t{0}, std::as_writable_bytes(std::span(part))).code() ==
          Errc::kInvalidArgument);
    CHECK(checkpoint.read(tensor, tensor.bytes, {}).ok());
    if (!checkpoint.bytes(tensor).empty()) CHECK(as_text(checkpoint.bytes(tensor)) == whole);
    std::vector<float> expected(tensor.num_elements());
    corbel::traits(tensor.dtype)
        .dequantize(bytes_of(whole).data(), expected.data(),
                    expected.size() / corbel::traits(tensor.dtype).block_elements);
    const auto values = checkpoint.read_f32(tensor);
    REQUIRE(values.ok());
    CHECK(std::memcmp(values->data(), expected.data(), expected.size() * 4) == 0);
    CHECK(values->size() == expected.size());
  }
}

}  // namespace

TEST_CASE("gguf: a good file reads the same from every source") {
  const Context context;
  const std::string file = good_gguf().build();
  const TemporaryFile on_disk(file);
  for (const Source& source : sources(file, on_disk.path())) {
    INFO(source.name);
    const auto checkpoint = source.open(context, {});
    REQUIRE(checkpoint.ok());
    check_good_file(*checkpoint, file);
    CHECK(checkpoint->bytes(checkpoint->tensors()[1]).empty() == !source.in_memory);
  }
  GgufBuilder version2 = good_gguf();
  version2.version = 2;
  CHECK(Checkpoint::from_memory(bytes_of(version2.build()), context)->format_version() == 2);
}

TEST_CASE("gguf: writer and reader are inverse to the byte") {
  const Context context;
  const std::string file = good_gguf().build();
  const auto checkpoint = Checkpoint::from_memory(bytes_of(file), context);
  REQUIRE(checkpoint.ok());
  const std::string again = rewritten(*checkpoint, bytes_of(file));
  REQUIRE(again.size() == file.size());
  // Equal but for the bytes between tensors, which the writer makes zero.
  std::string expected(file.size(), '\0');
  const std::size_t head = good_gguf().head().size();
  std::copy_n(file.begin(), head, expected.begin());
  for (const TensorInfo& tensor : checkpoint->tensors()) {
    std::copy_n(file.begin() + static_cast<std::ptrdiff_t>(tensor.offset), tensor.bytes,
                expected.begin() + static_cast<std::ptrdiff_t>(tensor.offset));
  }
  CHECK(again == expected);
  const auto second = Checkpoint::from_memory(bytes_of(again), context);
  REQUIRE(second.ok());
  CHECK(rewritten(*second, bytes_of(again)) == again);
}

TEST_CASE("gguf: files of other writers come back to the byte") {
  const Context context;
  for (const char* name : {"quants/types.gguf", "vocab/ggml-vocab-llama-spm.gguf", "vocab/ggml-vocab-gpt-2.gguf"}) {
    const std::string path = shared_data(name, "gguf: files of other writers come back to the byte");
    if (path.empty()) continue;
    const std::string file = read_file(path);
    const auto checkpoint = Checkpoint::from_memory(bytes_of(file), context);
    REQUIRE(checkpoint.ok());
    const std::string again = rewritten(*checkpoint, bytes_of(file));
    CHECK((again == file || again.substr(0, file.size()) == file));  // a file may lack the padding of its end
    CHECK(again.size() < file.size() + 32);
  }
}

TEST_CASE("gguf: the writer writes files, alignments and versions, and refuses what cannot be read") {
  const Context context;
  for (const std::uint64_t alignment : {1u, 2u, 32u, 4096u, 65536u}) {
    for (const std::uint32_t version : {2u, 3u}) {
      GgufWriter writer(version);
      writer.metadata().set("general.alignment", MetaValue::from_uint(alignment));
      const std::uint64_t shape[] = {3, 5};
      const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, -0.0f};
      REQUIRE(writer.add_f32("a", shape, values).ok());
      REQUIRE(writer.add_tensor("b", std::vector<std::uint64_t>{32}, corbel::DType::kQ4_0, std::vector<std::byte>(18))
                  .ok());
      REQUIRE(writer.add_f32("c", shape, values).ok());
      const TemporaryFile file("");
      REQUIRE(writer.write_file(file.path()).ok());
      CHECK(read_file(file.path()) == as_text(*writer.to_bytes()));
      CHECK_FALSE(std::filesystem::exists(file.path() + ".part"));
      const auto checkpoint = Checkpoint::open(file.path(), context);
      REQUIRE(checkpoint.ok());
      CHECK(checkpoint->format_version() == version);
      for (const TensorInfo& tensor : checkpoint->tensors()) CHECK(tensor.offset % alignment == 0);
      CHECK(*checkpoint->read_f32(*checkpoint->find_tensor("c")) == values);
    }
  }
  GgufWriter writer;
  const std::uint64_t shape[] = {4};
  const std::vector<float> four(4);
  CHECK(writer.add_f32("a", shape, four).ok());
  CHECK(writer.add_f32("a", shape, four).code() == Errc::kInvalidArgument);
  CHECK(writer.add_f32("", shape, four).code() == Errc::kInvalidArgument);
  CHECK(writer.add_f32("b", shape, std::vector<float>(5)).code() == Errc::kInvalidArgument);
  CHECK(writer.add_f32("b", {}, std::vector<float>(1)).code() == Errc::kInvalidArgument);
  CHECK(writer.add_f32("b", std::vector<std::uint64_t>(5, 1), std::vector<float>(1)).code() == Errc::kInvalidArgument);
  CHECK(writer.add_f32("b", std::vector<std::uint64_t>{0}, {}).code() == Errc::kInvalidArgument);
  const std::vector<std::uint64_t> wrapping = {std::uint64_t{1} << 62, 4};
  CHECK(writer.add_f32("b", wrapping, {}).code() == Errc::kInvalidArgument);
  CHECK(writer.add_tensor("b", shape, corbel::DType::kQ4_0, std::vector<std::byte>(18)).code() ==
        Errc::kInvalidArgument);
  CHECK(writer.add_tensor("b", shape, 4u, std::vector<std::byte>(18)).code() == Errc::kInvalidArgument);
  CHECK(writer.write_file("/nonexistent-folder/x.gguf").code() == Errc::kIoOpen);
  CHECK(GgufWriter(1).to_bytes().status().code() == Errc::kUnsupportedVersion);
  writer.metadata().set("general.alignment", MetaValue::from_uint(12));
  CHECK(writer.to_bytes().status().code() == Errc::kBadAlignment);
  writer.metadata().set("general.alignment", MetaValue::from_int(32));
  CHECK(writer.to_bytes().status().code() == Errc::kTypeMismatch);
  CHECK(writer.metadata().erase("general.alignment"));
  CHECK(Checkpoint::from_memory(*writer.to_bytes(), context)->tensors().size() == 1);
}

TEST_CASE("gguf: a full disk is no_space and leaves nothing behind") {
  GgufWriter writer;
  const std::uint64_t shape[] = {1024};
  REQUIRE(writer.add_f32("a", shape, std::vector<float>(1024)).ok());
  const TemporaryFile file("old");
  // The limit on the size of files stands for the disk; its signal, which ends programs, must not come.
  struct ::rlimit before = {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const struct ::rlimit small = {1000, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const corbel::Status status = writer.write_file(file.path());
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(status.code() == Errc::kNoSpace);
  CHECK(status.message().substr(0, file.path().size()) == file.path());
  CHECK_FALSE(std::filesystem::exists(file.path() + ".part"));
  CHECK(read_file(file.path()) == "old");
}

TEST_CASE("gguf: writing leaves other files alone, also those that its own would be called") {
  GgufWriter writer;
  const std::uint64_t shape[] = {4};
  REQUIRE(writer.add_f32("a", shape, std::vector<float>(4)).ok());
  const TemporaryFile file("old"), other("precious");
  const std::string part = file.path() + ".part";
  std::filesystem::create_symlink(other.path(), part);
  CHECK(writer.write_file(file.path()).ok());
  CHECK(read_file(other.path()) == "precious");
  CHECK(std::filesystem::is_symlink(part));
  CHECK(read_file(file.path()).substr(0, 4) == "GGUF");
  std::filesystem::remove(part);
}

TEST_CASE("metadata: typed access says what is wrong and where") {
  Metadata metadata;
  metadata.set("a.count", MetaValue::from_int(-3));
  metadata.set("a.scale", MetaValue::from_float(0.5, MetaType::kF64));
  metadata.set("a.name", MetaValue::from_string("x"));
  metadata.set("a.list", MetaValue::from_ints(std::vector<std::int32_t>{1, -2, 3}));
  const auto refused = [&](const auto& result, Errc code, const char* key) {
    CHECK(result.status().code() == code);
    CHECK(result.status().message().find(key) != std::string_view::npos);
  };
  refused(metadata.get_uint("a.count"), Errc::kBadValue, "a.count");
  refused(metadata.get_uint("a.scale"), Errc::kTypeMismatch, "a.scale");
  refused(metadata.get_float("a.count"), Errc::kTypeMismatch, "a.count");
  refused(metadata.get_bool("a.count"), Errc::kTypeMismatch, "a.count");
  refused(metadata.get_string("a.list"), Errc::kTypeMismatch, "a.list");
  refused(metadata.get_uint("a.none"), Errc::kMissingKey, "a.none");
  refused(metadata.get_uint_or("a.name", 7), Errc::kTypeMismatch, "a.name");
  CHECK(*metadata.get_uint_or("a.none", 7) == 7);
  CHECK(*metadata.get_float_or("a.none", 7.5) == 7.5);
  CHECK(*metadata.get_bool_or("a.none", true));
  CHECK(*metadata.get_string_or("a.none", "fallback") == "fallback");
  CHECK(*metadata.get_string_or("a.name", "fallback") == "x");
  CHECK(metadata.find("a.list")->int_at(1) == -2);
  CHECK(metadata.find("a.list")->float_at(1) == -2.0);
  CHECK(metadata.find("a.list")->int_at(3) == 0);

  metadata.set("a.name", MetaValue::from_string("y"));
  CHECK(metadata.entries().size() == 4);
  CHECK(metadata.entries()[2].key == "a.name");
  CHECK(metadata.erase("a.scale"));
  CHECK_FALSE(metadata.erase("a.scale"));
  CHECK(*metadata.get_string("a.name") == "y");
  CHECK(metadata.find("a.scale") == nullptr);
  CHECK(metadata.find("a.list")->size() == 3);

  CHECK(Metadata::from_entries({{"k", MetaValue::from_bool(true)}, {"l", {}}, {"k", {}}}).status().code() ==
        Errc::kDuplicate);
}

TEST_CASE("metadata: numbers of every width, saturating and cut where asked as another kind") {
  CHECK(*MetaValue::from_uint(300, MetaType::kU8).as_uint() == 44);
  CHECK(*MetaValue::from_int(-1, MetaType::kU16).as_uint() == 65535);
  CHECK(*MetaValue::from_int(-1, MetaType::kI64).as_int() == -1);
  CHECK(MetaValue::from_uint(1, MetaType::kString).type() == MetaType::kU32);
  const double infinite = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<double, std::int64_t>> cuts = {
      {2.9, 2}, {-2.9, -2}, {std::nan(""), 0}, {infinite, INT64_MAX}, {-infinite, INT64_MIN}, {1e300, INT64_MAX}};
  for (const auto& [value, expected] : cuts) {
    const MetaValue scalar = MetaValue::from_float(value, MetaType::kF64);
    CHECK(MetaValue::from_bytes(MetaType::kF64, scalar.raw()).int_at(0) == expected);
  }
  const MetaValue big = MetaValue::from_uint(~std::uint64_t{0}, MetaType::kU64);
  CHECK(MetaValue::from_bytes(MetaType::kU64, big.raw()).int_at(0) == INT64_MAX);
  CHECK(MetaValue::from_bytes(MetaType::kU64, big.raw()).float_at(0) == 0x1p64);
  CHECK(MetaValue::from_bytes(MetaType::kU16, std::vector<std::byte>(5)).size() == 2);
  CHECK(MetaValue::from_bytes(MetaType::kString, std::vector<std::byte>(5)).size() == 0);
  CHECK(std::string(corbel::meta_type_name(MetaType::kF64)) == "f64");
  CHECK(std::string(corbel::meta_type_name(static_cast<MetaType>(13))) == "unknown");
}

TEST_CASE("gguf: real models open in less than 100 ms") {
  const Context context;
  for (const char* name : {"smollm2", "gemma3"}) {
    const std::string path = real_model(name, "gguf: real models open in less than 100 ms");
    if (path.empty()) continue;
    for (const bool map : {false, true}) {
      double best = 1e9;
      for (int run = 0; run < 5; ++run) {
        const auto start = std::chrono::steady_clock::now();
        const auto checkpoint = Checkpoint::open(path, context, {.map = map});
        best =
            std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
        REQUIRE(checkpoint.ok());
        CHECK(checkpoint->tensors().size() > 200);
        CHECK(checkpoint->metadata().find("tokenizer.ggml.tokens")->size() > 49000);
      }
      CHECK(best < 100 * kSlowness);
    }
  }
}

TEST_CASE("gguf: one checkpoint is read by several threads at once") {
  const Context context;
  const std::string file = good_gguf().build();
  const TemporaryFile on_disk(file);
  const auto checkpoint = Checkpoint::open(on_disk.path(), context);
  REQUIRE(checkpoint.ok());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int run = 0; run < 200; ++run) {
        for (const TensorInfo& tensor : checkpoint->tensors()) {
          std::string bytes(tensor.bytes, '\0');
          const corbel::Status status = checkpoint->read(tensor, 0, std::as_writable_bytes(std::span(bytes)));
          wrong[t] += !status.ok() || bytes != file.substr(tensor.offset, tensor.bytes);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4));
}
