// Packs the commonest stored types without unpacking their blocks into integers and floats first: the same bytes as
// pack_blocks(), several times as fast. Private to the backend.
#pragma once

#include <corbel/backends/cpu/packed.hpp>
#include <corbel/config.hpp>
#include <corbel/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace cpu {

template <class T>
T load_stored(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Codes of 32 columns, four in a word.
using Quads = std::uint32_t[kBlockColumns / 4];

/// `kBits` bits, from bit `shift` on, of each of 32 bytes; added above `to` of what is there.
template <unsigned kBits, unsigned kTo>
void take_bits(const std::byte* from, unsigned shift, Quads& quads) noexcept {
  constexpr std::uint32_t kMask = 0x01010101u * ((1u << kBits) - 1);
  for (std::size_t i = 0; i < kBlockColumns / 4; ++i) {
    const std::uint32_t bits = (load_stored<std::uint32_t>(from + 4 * i) >> shift & kMask) << kTo;
    quads[i] = kTo == 0 ? bits : quads[i] | bits;
  }
}
/// Codes of 4 bits, those of columns 16 to 31 in the high halves of 16 bytes.
inline void take_halves(const std::byte* from, Quads& quads) noexcept {
  for (std::size_t i = 0; i < 4; ++i) {
    const auto word = load_stored<std::uint32_t>(from + 4 * i);
    quads[i] = word & 0x0f0f0f0fu;
    quads[i + 4] = word >> 4 & 0x0f0f0f0fu;
  }
}

/// How a type is stored: the codes of columns [32 * part, 32 * part + 32) of a block; and, where the packed scales are
/// integers, those of the block, then its factors of scales and (negated) minima as float16.
template <DType kType>
struct Stored {
  static constexpr bool kDirect = false;
};

template <>
struct Stored<DType::kQ4_0> {
  static constexpr bool kDirect = true;
  static constexpr std::size_t kColumns = 32, kBytes = 18;
  static void codes(const std::byte* block, std::size_t, Quads& quads) noexcept { take_halves(block + 2, quads); }
};
template <>
struct Stored<DType::kQ4_1> {
  static constexpr bool kDirect = true;
  static constexpr std::size_t kColumns = 32, kBytes = 20;
  static void codes(const std::byte* block, std::size_t, Quads& quads) noexcept { take_halves(block + 4, quads); }
};
/// One bit of each of 32 columns, the first the lowest, as bit 4 of the codes.
inline void take_fifth_bits(std::uint32_t bits, Quads& quads) noexcept {
  // Four bits go to the lowest of four bytes each: of the copies by 1, 2^7, 2^14, 2^21 every byte keeps its own.
  for (std::size_t i = 0; i < kBlockColumns / 4; ++i)
    quads[i] |= ((bits >> (4 * i) & 15u) * 0x00204081u & 0x01010101u) << 4;
}
template <>
struct Stored<DType::kQ5_0> {
  static constexpr bool kDirect = true;
  static constexpr std::size_t kColumns = 32, kBytes = 22;
  static void codes(const std::byte* block, std::size_t, Quads& quads) noexcept {
    take_halves(block + 6, quads);
    take_fifth_bits(load_stored<std::uint32_t>(block + 2), quads);
  }
};
template <>
struct Stored<DType::kQ5_1> {
  static constexpr bool kDirect = true;
  static constexpr std::size_t kColumns = 32, kBytes = 24;
  static void codes(const std::byte* block, std::size_t, Quads& quads) noexcept {
    take_halves(block + 8, quads);
    take_fifth_bits(load_stored<std::uint32_t>(block + 4), quads);
  }
};
template <>
struct Stored<DType::kQ8_0> {
  static constexpr bool kDirect = true;
  static constexpr std::size_t kColumns = 32, kBytes = 34;
  static void codes(const std::byte* block, std::size_t, Quads& quads) noexcept {
    std::memcpy(quads, block + 2, sizeof quads);
    for (std::uint32_t& quad : quads) quad ^= 0x80808080u;  // adds 128 to each byte
  }
};

/// The 6-bit scales and minima of Q4_K and Q5_K.
inline void take_six_bits(const std::byte* from, std::uint8_t (&scales)[16], std::uint8_t (&minima)[16]) noexcept {
  const auto a = load_stored<std::uint32_t>(from), b = load_stored<std::uint32_t>(from + 4),
             c = load_stored<std::uint32_t>(from + 8);
  const std::uint32_t words[4] = {a & 0x3f3f3f3fu, (c & 0x0f0f0f0fu) | (a >> 6 & 0x03030303u) << 4, b & 0x3f3f3f3fu,
                                  (c >> 4 & 0x0f0f0f0fu) | (b >> 6 & 0x03030303u) << 4};
  std::memcpy(scales, words, 8);
  std::memcpy(minima, words + 2, 8);
}
struct StoredKWithMinima {
  static constexpr bool kDirect = true;
  static constexpr std::size_t kColumns = 256;
  static void scales(const std::byte* block, std::uint8_t (&scale_codes)[16],
                     std::uint8_t (&minimum_codes)[16]) noexcept {
    take_six_bits(block + 4, scale_codes, minimum_codes);
  }
  static std::uint16_t scale(const std::byte* block) noexcept { return load_stored<std::uint16_t>(block); }
  static std::uint16_t minimum(const std::byte* block) noexcept {
    return static_cast<std::uint16_t>(load_stored<std::uint16_t>(block + 2) ^ 0x8000u);
  }
};
template <>
struct Stored<DType::kQ4_K> : StoredKWithMinima {
  static constexpr std::size_t kBytes = 144;
  static void codes(const std::byte* block, std::size_t part, Quads& quads) noexcept {
    take_bits<4, 0>(block + 16 + part / 2 * 32, static_cast<unsigned>(part % 2 * 4), quads);
  }
};
template <>
struct Stored<DType::kQ5_K> : StoredKWithMinima {
  static constexpr std::size_t kBytes = 176;
  static void codes(const std::byte* block, std::size_t part, Quads& quads) noexcept {
    take_bits<4, 0>(block + 48 + part / 2 * 32, static_cast<unsigned>(part % 2 * 4), quads);
    take_bits<1, 4>(block + 16, static_cast<unsigned>(part), quads);
  }
};
template <>
struct Stored<DType::kQ6_K> {
  static constexpr bool kDirect = true;
  static constexpr std::size_t kColumns = 256, kBytes = 210;
  static void codes(const std::byte* block, std::size_t part, Quads& quads) noexcept {
    take_bits<4, 0>(block + part / 4 * 64 + part % 2 * 32, static_cast<unsigned>(part % 4 / 2 * 4), quads);
    take_bits<2, 4>(block + 128 + part / 4 * 32, static_cast<unsigned>(part % 4 * 2), quads);
  }
  static void scales(const std::byte* block, std::uint8_t (&scale_codes)[16], std::uint8_t (&)[16]) noexcept {
    std::memcpy(scale_codes, block + 192, 16);
  }
  static std::uint16_t scale(const std::byte* block) noexcept { return load_stored<std::uint16_t>(block + 208); }
};

/// write_plane() of all lines.
template <unsigned kBits, std::size_t... kLines>
void store_plane(const Quads& quads, unsigned from, std::byte* to, std::index_sequence<kLines...>) noexcept {
  constexpr std::uint32_t kMask = 0x01010101u * ((1u << kBits) - 1);
  constexpr std::size_t kPerLine = 8 / kBits;
  const auto line = [&]<std::size_t... kQuads>(std::size_t first, std::index_sequence<kQuads...>) {
    return (((quads[first + kQuads] >> from & kMask) << (kQuads * kBits)) | ...);
  };
  const auto store = [&](std::size_t index) {
    const std::uint32_t word = line(index * kPerLine, std::make_index_sequence<kPerLine>());
    std::memcpy(to + index * 64, &word, sizeof word);
  };
  (store(kLines), ...);
}

/// Rows of kType into one group, a block of all rows at a time.
template <DType kType>
void pack_direct(const std::byte* rows, std::size_t num_rows, std::size_t row_bytes, std::size_t columns,
                 std::byte* group) noexcept {
  using From = Stored<kType>;
  constexpr PackedFormat kFormat = packed_format(kType);
  constexpr auto kLow = static_cast<unsigned>(kFormat.code_bits), kHigh = static_cast<unsigned>(kFormat.high_bits);
  constexpr std::size_t kScales = kBlockColumns / kFormat.scale_columns;
  const std::byte* stored = rows;
  for (std::size_t k = 0; k < columns; k += From::kColumns, stored += From::kBytes) {
    if constexpr (kFormat.nested()) {
      std::byte* const header = group;
      group += kFormat.header_bytes();
      for (std::size_t lane = 0; lane < num_rows; ++lane) {
        const std::byte* const block = stored + lane * row_bytes;
        const std::uint16_t scale = From::scale(block);
        std::memcpy(header + lane * 2, &scale, sizeof scale);
        std::uint8_t scale_codes[16] = {}, minimum_codes[16] = {};
        From::scales(block, scale_codes, minimum_codes);
        if constexpr (kFormat.has_minimum) {
          const std::uint16_t minimum = From::minimum(block);
          std::memcpy(header + (kGroupRows + lane) * 2, &minimum, sizeof minimum);
        }
        for (std::size_t part = 0; part < From::kColumns / kBlockColumns; ++part) {
          std::byte* const to = group + part * kFormat.record_bytes() + kFormat.code_bytes() + lane;
          for (std::size_t s = 0; s < kScales; ++s) {
            to[s * kGroupRows] = static_cast<std::byte>(scale_codes[part * kScales + s]);
            if constexpr (kFormat.has_minimum)
              to[kFormat.scales_bytes() + s * kGroupRows] = static_cast<std::byte>(minimum_codes[part * kScales + s]);
          }
        }
      }
    }
    for (std::size_t part = 0; part < From::kColumns / kBlockColumns; ++part, group += kFormat.record_bytes()) {
      for (std::size_t lane = 0; lane < num_rows; ++lane) {
        const std::byte* const block = stored + lane * row_bytes;
        Quads quads;
        From::codes(block, part, quads);
        store_plane<kLow>(quads, 0, group + lane * 4, std::make_index_sequence<kLow>());
        if constexpr (kHigh != 0)
          store_plane<kHigh>(quads, kLow, group + kFormat.low_bytes() + lane * 4, std::make_index_sequence<kHigh>());
        if constexpr (!kFormat.nested()) {
          std::byte* const scales = group + kFormat.code_bytes() + lane * 2;
          std::memcpy(scales, block, 2);
          if constexpr (kFormat.has_minimum) std::memcpy(scales + kFormat.scales_bytes(), block + 2, 2);
        }
      }
    }
  }
}

}  // namespace cpu
CORBEL_NAMESPACE_END
