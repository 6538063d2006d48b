// Element types: the trait table, conversions of 16-bit floats over all patterns, and dequantization bit for bit.
#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/checkpoint/json.hpp>
#include <corbel/dtype.hpp>

#include <algorithm>
#include <array>
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

#include "support/gguf_builder.hpp"
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
  REQUIRE(corbel::all_dtypes().size() == corbel::kNumDTypes);
  std::set<std::string> names;
  std::set<std::uint32_t> ids;
  for (std::size_t i = 0; i < corbel::all_dtypes().size(); ++i) {
    const DTypeTraits& row = corbel::all_dtypes()[i];
    CAPTURE(row.name);
    CHECK(static_cast<std::size_t>(row.dtype) == i);
    CHECK(&corbel::traits(row.dtype) == &row);
    CHECK(corbel::find_dtype_by_name(row.name) == &row);
    CHECK(corbel::find_dtype_by_safetensors_name(row.name) == (row.in_safetensors ? &row : nullptr));
    names.insert(row.name);
    if (row.ggml_id == corbel::kNoGgmlId) continue;
    CHECK(corbel::find_dtype_by_ggml_id(row.ggml_id) == &row);
    const corbel::GgmlType* type = corbel::find_ggml_type(row.ggml_id);
    REQUIRE(type != nullptr);
    CHECK(std::string(type->name) == row.name);
    CHECK(type->block_elements == row.block_elements);
    CHECK(type->block_bytes == row.block_bytes);
    ids.insert(row.ggml_id);
  }
  CHECK(names.size() == corbel::kNumDTypes);
  CHECK(ids.size() == 35);
  for (std::uint32_t id = 0; id < 50; ++id) {  // every type of the format that was not removed has a row
    const corbel::GgmlType* type = corbel::find_ggml_type(id);
    CAPTURE(id);
    CHECK((corbel::find_dtype_by_ggml_id(id) != nullptr) == (type != nullptr && type->block_elements != 0));
  }
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

TEST_CASE("dtype: codes of 4 bits stand around 8") {  // QN-05
  for (const auto& [scale, expected] :
       {std::pair(std::uint16_t{0x3800}, 1.0f), std::pair(std::uint16_t{0x3400}, 0.5f)}) {
    std::vector<std::byte> block(corbel::traits(DType::kQ4_0).block_bytes, std::byte{0xAA});
    std::memcpy(block.data(), &scale, 2);
    std::vector<float> values(32);
    corbel::traits(DType::kQ4_0).dequantize(block.data(), values.data(), 1);
    CHECK(values == std::vector<float>(32, expected));
  }
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
  CHECK(checked.size() == 28);
}

TEST_CASE("dtype: the first block with a NaN or infinite scale is found at each place") {
  // Where the f16 scales of a block are; F32, F16 and BF16 are looked at value by value.
  const std::map<std::string, std::vector<std::size_t>> scales = {
      {"F32", {2}},     {"F16", {0}},     {"BF16", {0}},      {"Q4_0", {0}},   {"Q4_1", {0, 2}}, {"Q5_0", {0}},
      {"Q5_1", {0, 2}}, {"Q8_0", {0}},    {"Q2_K", {80, 82}}, {"Q3_K", {108}}, {"Q4_K", {0, 2}}, {"Q5_K", {0, 2}},
      {"Q6_K", {208}},  {"Q8_1", {0, 2}}, {"Q8_K", {2}},      {"IQ1_S", {0}},  {"IQ2_XXS", {0}}, {"IQ2_XS", {0}},
      {"IQ2_S", {0}},   {"IQ3_XXS", {0}}, {"IQ3_S", {0}},     {"IQ4_NL", {0}}, {"IQ4_XS", {0}},  {"TQ1_0", {52}},
      {"TQ2_0", {64}},  {"Q1_0", {0}},    {"Q2_0", {0}},
  };
  for (const DTypeTraits& type : corbel::all_dtypes()) {
    CAPTURE(type.name);
    if (scales.count(type.name) == 0) continue;
    const std::size_t blocks = 5;
    // Bytes of 0x77 are finite in each of the formats.
    std::vector<std::byte> good(blocks * type.block_bytes, std::byte{0x77});
    CHECK(type.first_non_finite(good.data(), blocks) == blocks);
    CHECK(type.first_non_finite(good.data(), 0) == 0);
    const bool wide =
        std::string(type.name) == "F32" || std::string(type.name) == "BF16" || std::string(type.name) == "Q8_K";
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

TEST_CASE("dtype: plain types of safetensors decode by the definition of their format") {
  const auto decode = [](const char* name, std::vector<std::uint8_t> bytes) {
    const DTypeTraits* type = corbel::find_dtype_by_safetensors_name(name);
    REQUIRE(type != nullptr);
    std::vector<float> out(bytes.size() / type->block_bytes * type->block_elements);
    type->dequantize(reinterpret_cast<const std::byte*>(bytes.data()), out.data(), bytes.size() / type->block_bytes);
    return out;
  };
  using Floats = std::vector<float>;
  CHECK(decode("I8", {0x80, 0x7f}) == Floats{-128, 127});
  CHECK(decode("U8", {0x80}) == Floats{128});
  CHECK(decode("BOOL", {0, 1, 7}) == Floats{0, 1, 1});
  CHECK(decode("I16", {0xfe, 0xff}) == Floats{-2});
  CHECK(decode("U16", {0xfe, 0xff}) == Floats{65534});
  CHECK(decode("I32", {1, 0, 0, 0x80}) == Floats{-2147483648.0f});
  CHECK(decode("U32", {0xff, 0xff, 0xff, 0xff}) == Floats{4294967296.0f});
  CHECK(decode("I64", {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}) == Floats{-1});
  CHECK(decode("U64", {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}) == Floats{18446744073709551616.0f});
  CHECK(decode("F4", {0x10, 0x32, 0x54, 0x76, 0x98, 0xFE}) ==
        Floats{0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -4, -6});
  CHECK(decode("F6_E2M3", {0x41, 0xf0, 0xfd}) == Floats{0.125f, 0.125f, 7.5f, -7.5f});
  CHECK(decode("F6_E3M2", {0xc1, 0xf7, 0x81}) == Floats{0.0625f, 28, 28, -0.0f});
  CHECK(corbel::find_dtype_by_safetensors_name("Q4_0") == nullptr);
  CHECK(corbel::find_dtype_by_safetensors_name("C64") == nullptr);

  // The 8-bit floats, every code.
  for (std::uint32_t code = 0; code < 256; ++code) {
    CAPTURE(code);
    const double sign = code < 128 ? 1 : -1;
    const auto byte = static_cast<std::uint8_t>(code);
    const int exponent = static_cast<int>(code >> 3 & 15u);
    const double mantissa = code & 7u;
    const float e4m3 = decode("F8_E4M3", {byte})[0];
    if ((code & 127u) == 127u) {
      CHECK(std::isnan(e4m3));
    } else {
      const double value = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
      CHECK(static_cast<double>(e4m3) == sign * value);
    }
    CHECK(bits_of(decode("F8_E5M2", {byte})[0]) == bits_of(corbel::f16_to_f32(static_cast<std::uint16_t>(code << 8))));
    const float e8m0 = decode("F8_E8M0", {byte})[0];
    CHECK(
        (code == 255 ? std::isnan(e8m0) : static_cast<double>(e8m0) == std::ldexp(1.0, static_cast<int>(code) - 127)));
  }

  // F64: as the compiler converts, at the edges of each range and at random.
  std::uint64_t state = 88172645463325252u;
  for (int i = 0; i < 20000; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    std::uint64_t bits = state;
    if (i % 2 == 0) bits = (bits & 0x800FFFFFFFFFFFFFu) | (std::uint64_t{863} + state % 300) << 52;  // 2^-160 to 2^139
    if (i % 4 == 0) bits &= 0xFFFFFFFFF0000000u;                                                     // ties
    const auto value = std::bit_cast<double>(bits);
    std::vector<std::uint8_t> bytes(8);
    std::memcpy(bytes.data(), &bits, 8);
    const float out = decode("F64", bytes)[0];
    const bool same = std::isnan(value) ? std::isnan(out) : bits_of(out) == bits_of(static_cast<float>(value));
    if (!same) {
      CAPTURE(value, out);
      CHECK(same);
    }
  }
}

TEST_CASE("dtype: random bytes of every type decode, and to finite values where the check says so") {
  std::uint32_t state = 2463534242u;
  const auto random = [&] {
    state ^= state << 13, state ^= state >> 17, state ^= state << 5;
    return state;
  };
  for (const DTypeTraits& type : corbel::all_dtypes()) {
    CAPTURE(type.name);
    REQUIRE(type.block_elements <= 256);
    int finite = 0, wrong = 0;
    for (int round = 0; round < 2000; ++round) {
      // Exactly as large as they must be, for the sanitizers.
      std::vector<std::byte> block(type.block_bytes);
      for (std::byte& byte : block) byte = static_cast<std::byte>(random());
      if (round % 50 == 0) std::fill(block.begin(), block.end(), static_cast<std::byte>(round % 100 == 0 ? 0xff : 0));
      std::vector<float> out(type.block_elements);
      type.dequantize(block.data(), out.data(), 1);
      const bool all_finite = std::all_of(out.begin(), out.end(), [](float x) { return std::isfinite(x); });
      const bool passed = type.first_non_finite(block.data(), 1) == 1;
      finite += passed;
      if (passed && !all_finite) ++wrong;
      if (type.unpack == nullptr) {
        if (passed != all_finite && type.block_elements < 32) ++wrong;
        continue;
      }
      corbel::IntegerBlock integers;
      type.unpack(block.data(), integers);
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t group = i / type.scale_elements;
        float value = integers.scales[group] * static_cast<float>(integers.codes[i]);
        if (type.has_minimum) value += integers.minima[group];
        // Types that no file has may differ in the sign of a zero and in subnormal numbers.
        const bool near = type.ggml_id == corbel::kNoGgmlId && std::fabs(value - out[i]) <= 0x1p-140f;
        if (bits_of(value) != bits_of(out[i]) && !near && !(std::isnan(value) && std::isnan(out[i]))) ++wrong;
      }
    }
    CHECK(wrong == 0);
    CHECK(finite > 900);
  }
}

TEST_CASE("dtype: a tensor of any type whose size is wrong is refused with its name and type") {
  const corbel::Context context;
  int types = 0;
  for (const DTypeTraits& type : corbel::all_dtypes()) {
    if (type.ggml_id == corbel::kNoGgmlId) continue;
    CAPTURE(type.name);
    ++types;
    const auto open = [&](std::uint64_t columns, std::uint64_t bytes) {
      corbel_test::GgufBuilder file;
      file.keys = {corbel_test::gguf_key("general.architecture", 8, corbel_test::gguf_string("x"))};
      file.tensors = {{corbel_test::gguf_string("blk.0.w"), {columns, 3}, type.ggml_id, 0}};
      file.data.assign(bytes, '\0');
      const std::string text = file.build();
      return corbel::Checkpoint::from_memory(corbel_test::bytes_of(text), context).status();
    };
    const std::uint64_t bytes = std::uint64_t{6} * type.block_bytes;
    const std::uint64_t columns = std::uint64_t{2} * type.block_elements;
    CHECK(open(columns, (bytes + 31) / 32 * 32).ok());
    CHECK(open(columns, bytes - 1).code() == corbel::Errc::kTruncated);
    if (type.block_elements == 1) continue;
    const corbel::Status status = open(columns + 1, 4096);
    CHECK(status.code() == corbel::Errc::kShapeMismatch);
    for (const std::string& part : {std::string("blk.0.w"), "type " + std::string(type.name),
                                    "rows of " + std::to_string(columns + 1), std::to_string(type.block_elements)})
      CHECK(status.message().find(part) != std::string_view::npos);
  }
  CHECK(types == 35);
}

namespace {

// 4096 values of one of five kinds, exact in every language: sums of four 20-bit random numbers (about a bell), their
// cubes, the bell moved aside, a bell with outliers, magnitudes.
std::vector<float> encoder_input(std::uint32_t kind) {
  std::uint32_t state = 2463534242u + kind;
  const auto random = [&] {
    state ^= state << 13, state ^= state >> 17, state ^= state << 5;
    return state;
  };
  std::vector<float> out;
  for (int i = 0; i < 4096; ++i) {
    double sum = 0;
    for (int part = 0; part < 4; ++part) sum += random() >> 12;
    const double bell = (sum - 2097152) / 2097152;
    double value = bell * 0.125;
    if (kind == 1) value = bell * bell * bell;
    if (kind == 2) value = bell * 0.0625 + 0.03125;
    if (kind == 3) value = bell * 0.03125 * (random() % 64 == 0 ? 16.0 : 1.0);
    if (kind == 4) value = std::fabs(bell) * 2;
    out.push_back(static_cast<float>(value));
  }
  return out;
}

std::vector<std::byte> encoded(const DTypeTraits& type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() / type.block_elements * type.block_bytes);
  type.encode(values.data(), bytes.data(), values.size() / type.block_elements);
  return bytes;
}

std::vector<float> decoded(const DTypeTraits& type, const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / type.block_bytes * type.block_elements);
  type.dequantize(bytes.data(), values.data(), bytes.size() / type.block_bytes);
  return values;
}

}  // namespace

TEST_CASE("dtype: encoded values are no further from the input than the reference quantizer's") {
  // Sums of squared errors over each kind of encoder_input(): the 16-bit types rounded to nearest even, the others from
  // ggml 0.13's ggml_quantize_chunk without importance weights, decoded by this library.
  const std::map<std::string, std::array<double, 5>> reference = {
      {"F32", {0, 0, 0, 0, 0}},
      {"F16", {2.29751773e-07, 1.28776796e-06, 2.34646719e-07, 5.82024586e-08, 5.78429917e-05}},
      {"BF16", {1.5122186e-05, 8.04419728e-05, 1.38273085e-05, 4.53739677e-06, 0.00373287331}},
      {"Q4_0", {0.034951264, 0.342478027, 0.0228695439, 0.0402999889, 8.8101819}},
      {"Q4_1", {0.0300976931, 0.368959359, 0.00757633756, 0.0215398969, 2.30206421}},
      {"Q5_0", {0.00880773741, 0.0947266748, 0.00597011324, 0.012000924, 2.14085427}},
      {"Q5_1", {0.00680521833, 0.0822102522, 0.001722177, 0.00474127544, 0.542210779}},
      {"Q8_0", {0.000140097536, 0.00195572476, 9.34327399e-05, 0.000211037771, 0.0335738159}},
      {"Q2_K", {0.432648136, 4.1523862, 0.118001077, 0.116331281, 45.059676}},
      {"Q3_K", {0.115433322, 0.671367058, 0.074330487, 0.0402309386, 26.4540953}},
      {"Q4_K", {0.0250298629, 0.22306831, 0.00632596573, 0.0172261948, 2.16436823}},
      {"Q5_K", {0.00620709418, 0.0711930447, 0.0015570049, 0.00435461351, 0.523105526}},
      {"Q6_K", {0.00153463236, 0.0169832209, 0.00105872767, 0.00163811312, 0.390383246}},
  };
  std::uint64_t digest = 14695981039346656037u;
  std::size_t types = 0;
  for (const DTypeTraits& type : corbel::all_dtypes()) {
    if (type.encode == nullptr) continue;
    CAPTURE(type.name);
    ++types;
    for (std::uint32_t kind = 0; kind < 5; ++kind) {
      CAPTURE(kind);
      const std::vector<float> input = encoder_input(kind);
      const std::vector<std::byte> bytes = encoded(type, input);
      const std::vector<float> output = decoded(type, bytes);
      double error = 0;
      for (std::size_t i = 0; i < input.size(); ++i) {
        const double rest = static_cast<double>(input[i]) - static_cast<double>(output[i]);
        error += rest * rest;
      }
      CHECK(error <= reference.at(type.name)[kind] * (1 + 1e-7));
      for (const std::byte byte : bytes) digest = (digest ^ std::to_integer<std::uint64_t>(byte)) * 1099511628211u;
    }
  }
  CHECK(types == reference.size());
  CHECK(digest == 0xa5cc066b1c53f818);  // the same bytes from every compiler; changes with an encoder
}

TEST_CASE("dtype: QN-01: what is encoded is finite, whatever comes in, and zeros stay zeros") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float largest = std::numeric_limits<float>::max(), denormal = std::numeric_limits<float>::denorm_min();
  for (const DTypeTraits& type : corbel::all_dtypes()) {
    if (type.encode == nullptr) continue;
    CAPTURE(type.name);
    if (type.unpack == nullptr) {  // plain types keep what they are given
      const std::vector<float> output = decoded(type, encoded(type, {inf, -inf, nan, 0.0f, -0.0f, 1.5f}));
      CHECK((output[0] == inf && output[1] == -inf && std::isnan(output[2])));
      CHECK((bits_of(output[3]) == 0 && bits_of(output[4]) == 0x80000000u && output[5] == 1.5f));
      continue;
    }
    std::vector<float> input = encoder_input(0);
    std::vector<float> clean = input;
    input[0] = nan, clean[0] = 0;
    input[700] = inf, clean[700] = largest;
    input[1100] = -inf, clean[1100] = -largest;
    CHECK(encoded(type, input) == encoded(type, clean));
    for (const float value : {0.0f, -0.0f, denormal, -denormal, 1e-30f, largest, -largest, 65504.0f, 3e38f, -1e-5f}) {
      CAPTURE(value);
      for (const std::size_t stride : {std::size_t{1}, std::size_t{7}, std::size_t{256}}) {
        std::vector<float> few(1024, 0.0f);
        for (std::size_t i = 0; i < few.size(); i += stride) few[i] = value;
        const std::vector<std::byte> bytes = encoded(type, few);
        CHECK(type.first_non_finite(bytes.data(), 1024 / type.block_elements) == 1024 / type.block_elements);
        if (std::fabs(value) < 1e-20f) {
          for (const float out : decoded(type, bytes)) CHECK(out == 0);
        }
      }
    }
  }
}
