// Element types: the trait table, conversions of 16-bit floats over all patterns, and dequantization bit for bit.
#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/checkpoint/json.hpp>
#include <corbel/dtype.hpp>

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/support.hpp"

using corbel::DType;
using corbel::DTypeTraits;

namespace {

// The value of an f16 pattern by the definition of the format, in double.
double f16_value(std::uint32_t bits) {
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  const auto exponent = static_cast<int>(bits >> 10 & 31u);
  const double mantissa = bits & 0x3FFu;
  if (exponent == 31) return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024.0 + mantissa, exponent - 25));
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

}  // namespace

TEST_CASE("dtype: the trait table is complete and agrees with the file format's") {
  REQUIRE(corbel::all_dtypes().size() == 13);
  std::set<std::string> names;
  std::set<std::uint32_t> ids;
  for (std::size_t i = 0; i < corbel::all_dtypes().size(); ++i) {
    const DTypeTraits& row = corbel::all_dtypes()[i];
    CAPTURE(row.name);
    CHECK(static_cast<std::size_t>(row.dtype) == i);
    CHECK(&corbel::traits(row.dtype) == &row);
    CHECK(corbel::find_dtype_by_ggml_id(row.ggml_id) == &row);
    CHECK(corbel::find_dtype_by_name(row.name) == &row);
    const corbel::GgmlType* type = corbel::find_ggml_type(row.ggml_id);
    REQUIRE(type != nullptr);
    CHECK(std::string(type->name) == row.name);
    CHECK(type->block_elements == row.block_elements);
    CHECK(type->block_bytes == row.block_bytes);
    names.insert(row.name);
    ids.insert(row.ggml_id);
  }
  CHECK(names.size() == 13);
  CHECK(ids.size() == 13);
  CHECK(corbel::find_dtype_by_ggml_id(9) == nullptr);
  CHECK(corbel::find_dtype_by_ggml_id(0xFFFFFFFFu) == nullptr);
  CHECK(corbel::find_dtype_by_name("q4_k") == nullptr);
  CHECK(corbel::find_dtype_by_name("") == nullptr);
  CHECK(corbel::find_ggml_type(43) == nullptr);
  CHECK(corbel::find_ggml_type(4)->block_elements == 0);
}

TEST_CASE("dtype: every f16 pattern converts exactly and back") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const float value = corbel::f16_to_f32(static_cast<std::uint16_t>(bits));
    const double expected = f16_value(bits);
    const bool same = std::isnan(expected) ? std::isnan(value) : static_cast<double>(value) == expected;
    const bool sign = (bits_of(value) >> 31) == (bits >> 15);
    if (!same || !sign || corbel::f32_to_f16(value) != bits) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("dtype: every bf16 pattern converts exactly and back") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const float value = corbel::bf16_to_f32(static_cast<std::uint16_t>(bits));
    if (bits_of(value) != bits << 16 || corbel::f32_to_bf16(value) != bits) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("dtype: f32 to f16 rounds to nearest, ties to even, around every f16 value") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x7C00u; ++bits) {  // each value and its upper neighbour; 0x7BFF's is infinity
    const double low = f16_value(bits);
    const double high = bits == 0x7BFFu ? 65536.0 : f16_value(bits + 1);
    const auto middle = static_cast<float>((low + high) / 2);  // exact: 12 bits of mantissa
    const auto even = static_cast<std::uint16_t>((bits & 1u) == 0 ? bits : bits + 1);
    const float below = std::bit_cast<float>(bits_of(middle) - 1);
    const float above = std::bit_cast<float>(bits_of(middle) + 1);
    for (const std::uint32_t sign : {0u, 0x8000u}) {
      const auto convert = [&](float value) {
        return static_cast<std::uint32_t>(corbel::f32_to_f16(sign == 0 ? value : -value));
      };
      wrong += convert(middle) != (sign | even);
      wrong += convert(below) != (sign | bits);
      wrong += convert(above) != (sign | (bits + 1));
    }
  }
  CHECK(wrong == 0);
  CHECK(corbel::f32_to_f16(std::numeric_limits<float>::max()) == 0x7C00u);
  CHECK(corbel::f32_to_f16(std::numeric_limits<float>::denorm_min()) == 0u);
  CHECK(corbel::f32_to_f16(-std::numeric_limits<float>::infinity()) == 0xFC00u);
  CHECK(std::isnan(corbel::f16_to_f32(corbel::f32_to_f16(std::bit_cast<float>(0x7F800001u)))));
}

TEST_CASE("dtype: f32 to bf16 rounds to nearest, ties to even") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x7F80u; ++bits) {
    const std::uint32_t middle = bits << 16 | 0x8000u;
    const std::uint32_t even = (bits & 1u) == 0 ? bits : bits + 1;
    for (const std::uint32_t sign : {0u, 0x8000u}) {
      const auto convert = [&](std::uint32_t value) {
        return static_cast<std::uint32_t>(corbel::f32_to_bf16(std::bit_cast<float>(value | sign << 16)));
      };
      wrong += convert(middle) != (sign | even);
      wrong += convert(middle - 1) != (sign | bits);
      wrong += convert(middle + 1) != (sign | (bits + 1));
    }
  }
  CHECK(wrong == 0);
  CHECK(std::isnan(corbel::bf16_to_f32(corbel::f32_to_bf16(std::bit_cast<float>(0x7F800001u)))));
  CHECK(std::isnan(corbel::bf16_to_f32(corbel::f32_to_bf16(std::bit_cast<float>(0xFFFFFFFFu)))));
}

TEST_CASE("dtype: dequantization equals the reference bit for bit") {
  const std::string file = corbel_test::shared_data("quants/types.gguf", "dtype: dequantization equals the reference");
  if (file.empty()) return;
  const std::string expected =
      corbel_test::read_file(corbel_test::shared_data("quants/types_expected.safetensors", ""));
  std::uint64_t head_bytes = 0;
  REQUIRE(expected.size() > 8);
  std::memcpy(&head_bytes, expected.data(), 8);
  const auto head = corbel::json::parse(std::string_view(expected).substr(8, head_bytes));
  REQUIRE(head.ok());

  const corbel::Context context;
  std::map<std::string, int> checked;
  for (const bool map : {false, true}) {
    const auto checkpoint = corbel::Checkpoint::open(file, context, {.map = map});
    REQUIRE(checkpoint.ok());
    REQUIRE(checkpoint->tensors().size() == 28);
    for (const corbel::TensorInfo& tensor : checkpoint->tensors()) {
      CAPTURE(tensor.name, map);
      CHECK(corbel::find_ggml_type(tensor.ggml_type)->name == tensor.name);
      CHECK(tensor.shape == std::vector<std::uint64_t>{4, 512});
      const auto values = checkpoint->read_f32(tensor);
      if (!tensor.supported) {
        CHECK(values.status().code() == corbel::Errc::kUnsupported);
        CHECK(values.status().message().find("tensor \"" + tensor.name + "\"") != std::string::npos);
        CHECK(values.status().message().find("type " + tensor.name) != std::string::npos);
        CHECK(checkpoint->bytes(tensor).empty());
        std::byte byte{};
        CHECK(checkpoint->read(tensor, 0, {&byte, 1}).code() == corbel::Errc::kUnsupported);
        continue;
      }
      REQUIRE(values.ok());
      const corbel::json::Value* entry = head->find(tensor.name);
      REQUIRE(entry != nullptr);
      REQUIRE(entry->find("dtype")->as_string() == "F32");
      const std::uint64_t begin = entry->find("data_offsets")->items()[0].as_uint();
      REQUIRE(values->size() == 2048);
      CHECK(std::memcmp(values->data(), expected.data() + 8 + head_bytes + begin, 2048 * 4) == 0);
      ++checked[tensor.name];
    }
  }
  CHECK(checked.size() == 13);
}

TEST_CASE("dtype: the first block with a NaN or infinite scale is found at each place") {
  // Where the f16 scales of a block are; F32, F16 and BF16 are looked at value by value.
  const std::map<std::string, std::vector<std::size_t>> scales = {
      {"F32", {2}},     {"F16", {0}},     {"BF16", {0}},   {"Q4_0", {0}},      {"Q4_1", {0, 2}},
      {"Q5_0", {0}},    {"Q5_1", {0, 2}}, {"Q8_0", {0}},   {"Q2_K", {80, 82}}, {"Q3_K", {108}},
      {"Q4_K", {0, 2}}, {"Q5_K", {0, 2}}, {"Q6_K", {208}},
  };
  for (const DTypeTraits& type : corbel::all_dtypes()) {
    CAPTURE(type.name);
    const std::size_t blocks = 5;
    // Bytes of 0x77 are finite in each of the formats.
    std::vector<std::byte> good(blocks * type.block_bytes, std::byte{0x77});
    CHECK(type.first_non_finite(good.data(), blocks) == blocks);
    CHECK(type.first_non_finite(good.data(), 0) == 0);
    const bool wide = std::string(type.name) == "F32" || std::string(type.name) == "BF16";
    for (const std::size_t at : scales.at(type.name)) {
      for (const std::size_t block : {std::size_t{0}, std::size_t{2}, std::size_t{4}}) {
        for (const std::uint32_t bits :
             wide ? std::vector<std::uint32_t>{0x7F80u, 0xFFC0u} : std::vector<std::uint32_t>{0x7C00u, 0xFE00u}) {
          std::vector<std::byte> bad = good;
          bad[block * type.block_bytes + at] = static_cast<std::byte>(bits & 0xFFu);
          bad[block * type.block_bytes + at + 1] = static_cast<std::byte>(bits >> 8);
          CHECK(type.first_non_finite(bad.data(), blocks) == block);
        }
      }
    }
  }
}
