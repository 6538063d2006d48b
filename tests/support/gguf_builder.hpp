// Writes GGUF files field by field, also wrong ones: the malformed-file tests start from a good file and change one
// field. (For files that are well formed and only mean something wrong, corbel::GgufWriter is the simpler tool.)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace corbel_test {

inline std::string le(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xFFu);
  return out;
}
inline std::string le32(std::uint64_t value) { return le(value, 4); }
inline std::string le64(std::uint64_t value) { return le(value, 8); }
/// A length and the characters.
inline std::string gguf_string(std::string_view text) { return le64(text.size()) + std::string(text); }
/// A key, a type number and the bytes of a value.
inline std::string gguf_key(std::string_view key, std::uint64_t type, std::string_view value) {
  return gguf_string(key) + le32(type) + std::string(value);
}
/// The value of an array: element type, count, bytes.
inline std::string gguf_array(std::uint64_t element, std::uint64_t count, std::string_view bytes) {
  return le32(element) + le64(count) + std::string(bytes);
}

/// One row of the tensor table, as it is written.
struct GgufTensor {
  std::string name;                 // with its length: see gguf_string
  std::vector<std::uint64_t> dims;  // in the order of the file: fastest first
  std::uint64_t type = 0;
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> num_dims = {};  // written instead of dims.size()
};

struct GgufBuilder {
  std::string magic = "GGUF";
  std::uint64_t version = 3;
  std::optional<std::uint64_t> num_tensors = {};  // written instead of the true counts
  std::optional<std::uint64_t> num_keys = {};
  std::vector<std::string> keys;  // encoded: see gguf_key
  std::vector<GgufTensor> tensors;
  std::uint64_t alignment = 32;  // of the padding between head and data
  std::string data;

  std::string head() const {
    std::string out =
        magic + le32(version) + le64(num_tensors.value_or(tensors.size())) + le64(num_keys.value_or(keys.size()));
    for (const std::string& key : keys) out += key;
    for (const GgufTensor& tensor : tensors) {
      out += tensor.name + le32(tensor.num_dims.value_or(tensor.dims.size()));
      for (const std::uint64_t dim : tensor.dims) out += le64(dim);
      out += le32(tensor.type) + le64(tensor.offset);
    }
    return out;
  }
  std::string build() const {
    std::string out = head();
    if (alignment > 1) out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data;
  }
};

/// A good file of about 1.5 KB: every type of metadata, five tensors (F32, Q4_0, F16, Q6_K, F32), alignment 32.
inline GgufBuilder good_gguf() {
  GgufBuilder file;
  file.keys = {
      gguf_key("general.architecture", 8, gguf_string("llama")),
      gguf_key("general.alignment", 4, le32(32)),
      gguf_key("test.u8", 0, le(200, 1)),
      gguf_key("test.i8", 1, le(0xFF, 1)),
      gguf_key("test.u16", 2, le(65535, 2)),
      gguf_key("test.i16", 3, le(0x8000, 2)),
      gguf_key("test.u32", 4, le32(0xFFFFFFFFu)),
      gguf_key("test.i32", 5, le32(0xFFFFFFFEu)),
      gguf_key("test.f32", 6, le32(0x3FC00000u)),
      gguf_key("test.bool", 7, le(1, 1)),
      gguf_key("test.u64", 10, le64(~std::uint64_t{0})),
      gguf_key("test.i64", 11, le64(~std::uint64_t{0})),
      gguf_key("test.f64", 12, le64(0x4004000000000000u)),
      gguf_key("test.strings", 9, gguf_array(8, 3, gguf_string("a") + gguf_string("") + gguf_string("\xC3\xA4\xFF"))),
      gguf_key("test.floats", 9, gguf_array(6, 2, le32(0x3F800000u) + le32(0xC0000000u))),
      gguf_key("test.bools", 9, gguf_array(7, 2, le(1, 1) + le(0, 1))),
      gguf_key("test.empty", 9, gguf_array(8, 0, "")),
  };
  file.tensors = {
      {gguf_string("token_embd.weight"), {8, 4}, 0, 0},            // 128 bytes
      {gguf_string("blk.0.attn_q.weight"), {32, 2}, 2, 128},       // 36 bytes
      {gguf_string("blk.0.attn_norm.weight"), {5}, 1, 192},        // 10 bytes
      {gguf_string("blk.0.ffn_up.weight"), {256, 1, 2}, 14, 224},  // 420 bytes
      {gguf_string("output_norm.weight"), {6}, 0, 672},            // 24 bytes and 8 of tail
  };
  for (int i = 0; i < 704; ++i) file.data += static_cast<char>(i * 7 % 100);
  return file;
}

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span<const char>(text)); }

}  // namespace corbel_test
