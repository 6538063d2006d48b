// Encoders of the plain floats and of Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0.
#pragma once

#include <corbel/impl/dtype/blocks_of_32.ipp>
#include <corbel/impl/dtype/encode_search.ipp>
#include <corbel/impl/dtype/plain.ipp>

#include <bit>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace detail {

// Writes little-endian.
template <std::size_t kBytes>
void put(std::byte* out, std::uint32_t value) noexcept {
  for (std::size_t i = 0; i < kBytes; ++i) out[i] = static_cast<std::byte>(value >> (8 * i) & 0xFFu);
}

// A code that came out of a search, from its lowest value on.
inline std::uint32_t stored_code(float code, float lowest = 0) noexcept {
  return static_cast<std::uint32_t>(code - lowest);
}

// Specialized for each layout that can be written: encode(x, out) writes one block.
template <class Layout>
struct Encoder {};

template <>
struct Encoder<LayoutF32> {
  static void encode(const float* x, std::byte* out) noexcept { put<4>(out, std::bit_cast<std::uint32_t>(*x)); }
};
template <>
struct Encoder<LayoutF16> {
  static void encode(const float* x, std::byte* out) noexcept { put<2>(out, f32_to_f16(*x)); }
};
template <>
struct Encoder<LayoutBF16> {
  static void encode(const float* x, std::byte* out) noexcept { put<2>(out, f32_to_bf16(*x)); }
};

struct SymmetricBlock {
  Half scale;
  float codes[32];
};

template <int kSteps>
SymmetricBlock encode_symmetric(const float* in, float lo, float hi) noexcept {
  const EncoderBlock block(in, 32);
  const float* x = block.x;
  float top = 0;
  for (std::size_t i = 0; i < 32; ++i) {
    if ((x[i] < 0 ? -x[i] : x[i]) > (top < 0 ? -top : top)) top = x[i];
  }
  SymmetricBlock best;
  float best_error = -1;
  const auto attempt = [&](float scale) {
    SymmetricBlock now;
    now.scale = block.half(scale);
    const float error = symmetric_codes<32>(x, now.scale.value, lo, hi, now.codes);
    if (best_error < 0 || error < best_error) {
      best_error = error;
      best = now;
    }
  };
  attempt(top / lo);
  attempt(top / hi);
  float scale = symmetric_scale<32, kSteps>(x, lo, hi);
  // The rounded scale moves the codes, and those the best scale.
  for (int round = 0; round < 3; ++round) {
    attempt(scale);
    float product = 0, square = 0;
    for (std::size_t i = 0; i < 32; ++i) {
      product += x[i] * best.codes[i];
      square += best.codes[i] * best.codes[i];
    }
    scale = square > 0 ? product / square : 0.0f;
  }
  return best;
}

struct AffineBlock {
  Half scale, minimum;
  float codes[32];
};

template <int kSteps>
AffineBlock encode_affine(const float* in, float hi) noexcept {
  const EncoderBlock block(in, 32);
  const float* x = block.x;
  AffineBlock best;
  float best_error = -1;
  const auto attempt = [&](Affine fit) {
    AffineBlock now;
    now.scale = block.half(fit.scale);
    now.minimum = block.half(fit.minimum);
    const float error = affine_codes<32>(x, {now.scale.value, now.minimum.value}, hi, now.codes);
    if (best_error < 0 || error < best_error) {
      best_error = error;
      best = now;
    }
  };
  const auto [low, high] = std::minmax_element(x, x + 32);
  attempt({(*high - *low) / hi, *low});
  attempt(affine_search<32, kSteps>(x, hi, false));
  for (int round = 0; round < 2; ++round) {
    const Affine fit = affine_fit<32>(x, best.codes, false);
    attempt(fit);
    // The minimum that suits the rounded scale.
    const float scale = block.half(fit.scale).value;
    float rest = 0;
    for (std::size_t i = 0; i < 32; ++i) rest += x[i] - scale * best.codes[i];
    attempt({scale, rest / 32.0f});
  }
  return best;
}

// Nibbles with the low halves first, and the fifth bits.
inline std::uint32_t put_codes_of_32(const float* codes, float lowest, std::byte* nibbles) noexcept {
  std::uint32_t fifths = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    const std::uint32_t low = stored_code(codes[i], lowest), high = stored_code(codes[i + 16], lowest);
    nibbles[i] = static_cast<std::byte>((low & 15u) | (high & 15u) << 4);
    fifths |= (low >> 4) << i | (high >> 4) << (i + 16);
  }
  return fifths;
}

template <>
struct Encoder<LayoutQ4_0> {
  static void encode(const float* x, std::byte* out) noexcept {
    const SymmetricBlock block = encode_symmetric<9>(x, -8, 7);
    put<2>(out, block.scale.bits);
    put_codes_of_32(block.codes, -8, out + 2);
  }
};
template <>
struct Encoder<LayoutQ4_1> {
  static void encode(const float* x, std::byte* out) noexcept {
    const AffineBlock block = encode_affine<4>(x, 15);
    put<2>(out, block.scale.bits);
    put<2>(out + 2, block.minimum.bits);
    put_codes_of_32(block.codes, 0, out + 4);
  }
};
template <>
struct Encoder<LayoutQ5_0> {
  static void encode(const float* x, std::byte* out) noexcept {
    const SymmetricBlock block = encode_symmetric<9>(x, -16, 15);
    put<2>(out, block.scale.bits);
    put<4>(out + 2, put_codes_of_32(block.codes, -16, out + 6));
  }
};
template <>
struct Encoder<LayoutQ5_1> {
  static void encode(const float* x, std::byte* out) noexcept {
    const AffineBlock block = encode_affine<4>(x, 31);
    put<2>(out, block.scale.bits);
    put<2>(out + 2, block.minimum.bits);
    put<4>(out + 4, put_codes_of_32(block.codes, 0, out + 8));
  }
};
template <>
struct Encoder<LayoutQ8_0> {
  static void encode(const float* x, std::byte* out) noexcept {
    const SymmetricBlock block = encode_symmetric<5>(x, -127, 127);
    put<2>(out, block.scale.bits);
    for (std::size_t i = 0; i < 32; ++i)
      out[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(static_cast<std::int32_t>(block.codes[i])));
  }
};

}  // namespace detail
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
