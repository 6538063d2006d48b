// Encoders of the K types: a fit per group, then the two levels of scales rounded together.
#pragma once

#include <corbel/impl/dtype/encode_blocks.ipp>
#include <corbel/impl/dtype/encode_search.ipp>
#include <corbel/impl/dtype/k_types.ipp>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace detail {

inline float round_down(float value) noexcept {
  const float nearest = round_even(value);
  return nearest > value ? nearest - 1.0f : nearest;
}

template <std::size_t kGroups>
struct EncodedK {
  Half d, dmin;
  float scales[kGroups];  // small integers
  float minima[kGroups];  // likewise
  float codes[256];
  float error = -1;
};

// Types without minima: small scales within [scale_lo, -scale_lo - 1], codes within [lo, hi].
template <std::size_t kGroups, int kSteps>
EncodedK<kGroups> encode_symmetric_k(const float* in, float scale_lo, float lo, float hi) noexcept {
  constexpr std::size_t kCount = 256 / kGroups;
  const EncoderBlock block(in, 256);
  const float* x = block.x;
  float fits[kGroups], top = 0;
  for (std::size_t g = 0; g < kGroups; ++g) {
    fits[g] = symmetric_scale<kCount, kSteps>(x + g * kCount, lo, hi);
    if ((fits[g] < 0 ? -fits[g] : fits[g]) > (top < 0 ? -top : top)) top = fits[g];
  }
  EncodedK<kGroups> best;
  const auto attempt = [&](float d) {
    EncodedK<kGroups> now;
    now.d = block.half(d);
    now.dmin = {};
    now.error = 0;
    const float inv = inverse(now.d.value);
    for (std::size_t g = 0; g < kGroups; ++g) {
      now.minima[g] = 0;
      const float below = round_down(fits[g] * inv);
      float group_error = -1;
      for (const float candidate : {below, below + 1.0f}) {
        const float scale = std::clamp(candidate, scale_lo, -scale_lo - 1.0f);
        float codes[kCount];
        const float error = symmetric_codes<kCount>(x + g * kCount, now.d.value * scale, lo, hi, codes);
        if (group_error >= 0 && error >= group_error) continue;
        group_error = error;
        now.scales[g] = scale;
        std::copy_n(codes, kCount, now.codes + g * kCount);
      }
      now.error += group_error;
    }
    if (best.error < 0 || now.error < best.error) best = now;
  };
  attempt(top / scale_lo);
  attempt(top / (-scale_lo - 1.0f));
  for (int round = 0; round < 2; ++round) {
    float product = 0, square = 0;
    for (std::size_t i = 0; i < 256; ++i) {
      const float whole = best.scales[i / kCount] * best.codes[i];
      product += x[i] * whole;
      square += whole * whole;
    }
    attempt(square > 0 ? product / square : 0.0f);
  }
  return best;
}

// Types with minima: small scales and minima within [0, scale_hi], codes within [0, hi].
template <std::size_t kGroups, int kSteps>
EncodedK<kGroups> encode_affine_k(const float* in, float scale_hi, float hi) noexcept {
  constexpr std::size_t kCount = 256 / kGroups;
  const EncoderBlock block(in, 256);
  const float* x = block.x;
  Affine fits[kGroups];
  float top = 0, bottom = 0;
  for (std::size_t g = 0; g < kGroups; ++g) {
    fits[g] = affine_search<kCount, kSteps>(x + g * kCount, hi, true);
    fits[g].scale = std::max(fits[g].scale, 0.0f);
    top = std::max(top, fits[g].scale);
    bottom = std::max(bottom, -fits[g].minimum);
  }
  EncodedK<kGroups> best;
  const auto attempt = [&](float d, float dmin) {
    EncodedK<kGroups> now;
    now.d = block.half(d);
    now.dmin = block.half(dmin);
    now.error = 0;
    const float inv = inverse(now.d.value), inv_min = inverse(now.dmin.value);
    for (std::size_t g = 0; g < kGroups; ++g) {
      const float scale_below = round_down(fits[g].scale * inv), minimum_below = round_down(-fits[g].minimum * inv_min);
      float group_error = -1;
      for (const float scale_step : {0.0f, 1.0f, -1.0f}) {
        const float scale = std::clamp(scale_below + scale_step, 0.0f, scale_hi);
        for (const float minimum_step : {0.0f, 1.0f, -1.0f, 2.0f}) {
          const float minimum = std::clamp(minimum_below + minimum_step, 0.0f, scale_hi);
          float codes[kCount];
          const Affine whole = {now.d.value * scale, -(now.dmin.value * minimum)};
          const float error = affine_codes<kCount>(x + g * kCount, whole, hi, codes);
          if (group_error >= 0 && error >= group_error) continue;
          group_error = error;
          now.scales[g] = scale;
          now.minima[g] = minimum;
          std::copy_n(codes, kCount, now.codes + g * kCount);
        }
      }
      now.error += group_error;
    }
    if (best.error < 0 || now.error < best.error) best = now;
  };
  attempt(top / scale_hi, bottom / scale_hi);
  for (int round = 0; round < 2; ++round) {
    // Least squares of x = d * (scale * code) - dmin * minimum over the block.
    float aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (std::size_t i = 0; i < 256; ++i) {
      const float a = best.scales[i / kCount] * best.codes[i], b = -best.minima[i / kCount];
      aa += a * a;
      ab += a * b;
      bb += b * b;
      ax += a * x[i];
      bx += b * x[i];
    }
    const float determinant = aa * bb - ab * ab;
    if (!(determinant > 0)) break;
    attempt((ax * bb - bx * ab) / determinant, std::max((bx * aa - ax * ab) / determinant, 0.0f));
  }
  return best;
}

// The inverse of unpack_scales_and_minima().
inline void put_scales_and_minima(const EncodedK<8>& block, std::byte* out) noexcept {
  put<2>(out, block.d.bits);
  put<2>(out + 2, block.dmin.bits);
  for (std::size_t i = 0; i < 4; ++i) {
    const std::uint32_t scale = stored_code(block.scales[i]), late_scale = stored_code(block.scales[i + 4]);
    const std::uint32_t minimum = stored_code(block.minima[i]), late_minimum = stored_code(block.minima[i + 4]);
    put<1>(out + 4 + i, scale | late_scale >> 4 << 6);
    put<1>(out + 8 + i, minimum | late_minimum >> 4 << 6);
    put<1>(out + 12 + i, (late_scale & 15u) | (late_minimum & 15u) << 4);
  }
}

template <>
struct Encoder<LayoutQ2_K> {
  static void encode(const float* x, std::byte* out) noexcept {
    const EncodedK<16> block = encode_affine_k<16, 4>(x, 15, 3);
    for (std::size_t i = 0; i < 16; ++i)
      put<1>(out + i, stored_code(block.scales[i]) | stored_code(block.minima[i]) << 4);
    for (std::size_t i = 0; i < 64; ++i) {
      std::uint32_t bits = 0;
      for (std::size_t part = 0; part < 4; ++part)
        bits |= stored_code(block.codes[i / 32 * 128 + part * 32 + i % 32]) << (2 * part);
      put<1>(out + 16 + i, bits);
    }
    put<2>(out + 80, block.d.bits);
    put<2>(out + 82, block.dmin.bits);
  }
};

template <>
struct Encoder<LayoutQ3_K> {
  static void encode(const float* x, std::byte* out) noexcept {
    const EncodedK<16> block = encode_symmetric_k<16, 9>(x, -32, -4, 3);
    std::uint32_t codes[256];
    for (std::size_t i = 0; i < 256; ++i) codes[i] = stored_code(block.codes[i], -4);
    for (std::size_t i = 0; i < 32; ++i) {
      std::uint32_t thirds = 0;
      for (std::size_t row = 0; row < 8; ++row) thirds |= codes[row * 32 + i] >> 2 << row;
      put<1>(out + i, thirds);
    }
    for (std::size_t i = 0; i < 64; ++i) {
      std::uint32_t bits = 0;
      for (std::size_t part = 0; part < 4; ++part)
        bits |= (codes[i / 32 * 128 + part * 32 + i % 32] & 3u) << (2 * part);
      put<1>(out + 32 + i, bits);
    }
    std::uint32_t scales[16];
    for (std::size_t i = 0; i < 16; ++i) scales[i] = stored_code(block.scales[i], -32);
    for (std::size_t i = 0; i < 8; ++i) put<1>(out + 96 + i, (scales[i] & 15u) | (scales[i + 8] & 15u) << 4);
    for (std::size_t i = 0; i < 4; ++i) {
      put<1>(out + 104 + i,
             scales[i] >> 4 | scales[i + 4] >> 4 << 2 | scales[i + 8] >> 4 << 4 | scales[i + 12] >> 4 << 6);
    }
    put<2>(out + 108, block.d.bits);
  }
};

template <>
struct Encoder<LayoutQ4_K> {
  static void encode(const float* x, std::byte* out) noexcept {
    const EncodedK<8> block = encode_affine_k<8, 4>(x, 63, 15);
    put_scales_and_minima(block, out);
    for (std::size_t i = 0; i < 128; ++i) {
      const float* pair = block.codes + i / 32 * 64 + i % 32;
      put<1>(out + 16 + i, stored_code(pair[0]) | stored_code(pair[32]) << 4);
    }
  }
};

template <>
struct Encoder<LayoutQ5_K> {
  static void encode(const float* x, std::byte* out) noexcept {
    const EncodedK<8> block = encode_affine_k<8, 4>(x, 63, 31);
    put_scales_and_minima(block, out);
    for (std::size_t i = 0; i < 32; ++i) {
      std::uint32_t fifths = 0;
      for (std::size_t row = 0; row < 8; ++row) fifths |= stored_code(block.codes[row * 32 + i]) >> 4 << row;
      put<1>(out + 16 + i, fifths);
    }
    for (std::size_t i = 0; i < 128; ++i) {
      const float* pair = block.codes + i / 32 * 64 + i % 32;
      put<1>(out + 48 + i, (stored_code(pair[0]) & 15u) | (stored_code(pair[32]) & 15u) << 4);
    }
  }
};

template <>
struct Encoder<LayoutQ6_K> {
  static void encode(const float* x, std::byte* out) noexcept {
    const EncodedK<16> block = encode_symmetric_k<16, 6>(x, -128, -32, 31);
    std::uint32_t codes[256];
    for (std::size_t i = 0; i < 256; ++i) codes[i] = stored_code(block.codes[i], -32);
    for (std::size_t i = 0; i < 128; ++i) {
      const std::uint32_t* pair = codes + i / 64 * 128 + i % 64;
      put<1>(out + i, (pair[0] & 15u) | (pair[64] & 15u) << 4);
    }
    for (std::size_t i = 0; i < 64; ++i) {
      std::uint32_t bits = 0;
      for (std::size_t part = 0; part < 4; ++part) bits |= codes[i / 32 * 128 + part * 32 + i % 32] >> 4 << (2 * part);
      put<1>(out + 128 + i, bits);
    }
    for (std::size_t i = 0; i < 16; ++i)
      out[192 + i] = static_cast<std::byte>(static_cast<std::int8_t>(static_cast<std::int32_t>(block.scales[i])));
    put<2>(out + 208, block.d.bits);
  }
};

}  // namespace detail
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
