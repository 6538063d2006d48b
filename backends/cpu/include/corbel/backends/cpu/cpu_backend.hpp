// CpuBackend: packed weights, vector kernels for several instruction levels in one binary, and the context's threads.
//
// The level is chosen once, when the backend is made (ContextOptions::isa, force_isa, amx). Quantized weights meet
// activations that are quantized to 8 bits, one scale per 32 of a row; plain weights meet float32. At level amx that
// holds for rows of generated tokens; in rows of prompts, activations and all weights but float32 and float16 ones are
// rounded to bfloat16. Every output is reduced in one order that depends on its own row alone: results are bit-equal
// for any number of threads, rows, chunks and any cache block size, and may differ between levels.
#pragma once

#include <corbel/backends/cpu/kernel_table.hpp>
#include <corbel/backends/cpu/packed.hpp>
#include <corbel/backends/cpu/tile_table.hpp>
#include <corbel/config.hpp>
#include <corbel/context.hpp>
#include <corbel/detail/digest.hpp>
#include <corbel/dtype.hpp>
#include <corbel/error.hpp>
#include <corbel/hal/backend.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN

/// The CPU backend; the members are those of hal::Backend. Work runs at once, on the calling thread and the context's
/// executor, so a stream holds nothing and synchronize() has nothing to wait for. Const members may be called from
/// several threads.
class CORBEL_API CpuBackend {
 public:
  static constexpr const char* kName = "cpu";

  /// Memory that only the backend's own calls touch.
  class Buffer {
   public:
    std::uint64_t bytes() const noexcept { return memory_.size(); }

   private:
    friend class CpuBackend;
    Allocation memory_;
  };

  /// A packed weight (see packed.hpp); a vector is float32.
  class Weight {
   public:
    std::uint64_t bytes() const noexcept { return bytes_.size(); }
    std::uint64_t rows() const noexcept { return rows_; }
    std::uint64_t cols() const noexcept { return cols_; }
    /// The rows of one stored tensor. Segments lie top to bottom; each begins with a group of its own.
    struct Segment {
      DType dtype = DType::kF32;
      std::uint64_t rows = 0;
      std::uint64_t first_row = 0;
      std::uint64_t group_bytes = 0;
      const std::byte* groups = nullptr;
    };
    const std::vector<Segment>& segments() const noexcept { return segments_; }
    /// Dequantizes row `index` (over all segments) into out [cols()], equal to the reference dequantization bit for
    /// bit.
    void read_row(std::uint64_t index, float* out) const noexcept;
    /// The elements of a vector [cols()].
    const float* vector() const noexcept { return reinterpret_cast<const float*>(bytes_.data()); }

   private:
    friend class CpuBackend;
    Allocation memory_;                 // of what prepare() made
    std::shared_ptr<const void> keep_;  // of what adopt() took
    std::span<const std::byte> bytes_;  // either way
    std::vector<Segment> segments_;
    std::uint64_t rows_ = 0;
    std::uint64_t cols_ = 0;
  };

  class Stream {};

  /// Errc::kUnsupported where the level that the options force is not there.
  static Result<CpuBackend> create(const Context& context);

  Result<Buffer> allocate(std::uint64_t bytes, std::string_view what) const;

  /// Errors: kUnsupported where a row is not a whole number of blocks; kShapeMismatch where parts differ in columns;
  /// kBadValue (tensor, block) for a NaN or an infinity; kOverflow; kOutOfMemory; those of the sources.
  Result<Weight> prepare(const hal::WeightSpec& spec) const;
  /// Saturates where a size does not fit.
  std::uint64_t weight_bytes(const hal::WeightSpec& spec) const noexcept;

  // hal::KeepsPacked. The layout is the same at every level.
  detail::Digest packed_layout(std::span<const hal::WeightSpec> specs) const;
  std::span<const std::byte> packed_bytes(const Weight& weight) const noexcept { return weight.bytes_; }
  /// Errors: those of prepare() that the shapes give; kInvalidArgument for a vector, or for bytes of another number or
  /// alignment.
  Result<Weight> adopt(const hal::WeightSpec& spec, std::span<const std::byte> bytes,
                       std::shared_ptr<const void> keep) const;

  bool supports(const hal::Op& op, const hal::Program& program) const noexcept;
  std::uint64_t workspace_bytes(const hal::Program& program, const hal::BatchLimits& limits) const noexcept;
  /// Keys in subtiles [block_tokens / 16][head_dim][16] per kv head, values [block_tokens][head_dim] per kv head.
  hal::KvLayout kv_layout(const hal::KvSpec& spec) const { return hal::make_kv_layout(spec); }

  Result<Stream> make_stream() const { return Stream(); }
  Status upload(Stream& stream, Buffer& to, std::uint64_t offset, const void* from, std::uint64_t bytes) const;
  Status download(Stream& stream, const Buffer& from, std::uint64_t offset, void* to, std::uint64_t bytes) const;
  Status copy_kv_block(Stream& stream, Buffer& kv, const hal::KvLayout& layout, std::int32_t from,
                       std::int32_t to) const;
  /// Runs the program. A batch that contradicts its layout, the weights or the cache is Errc::kInternal, found before
  /// anything is written.
  Status run(Stream& stream, const hal::Bindings<CpuBackend>& bindings) const;
  Status synchronize(Stream&) const noexcept { return {}; }

  /// Measures, where the options want it and the context has no values yet, what changes speed and no bit, on some of
  /// these weights: at most some 8 ms. Nothing where they are small. For models that are loaded one after the other.
  void tune(std::span<const Weight> weights) const noexcept;
  /// The values that runs use now, in one line.
  std::string describe_tuning() const;
  /// Names all that measured values hold for: the processor, the level, the threads, and what is measured.
  std::string tuning_identity() const;

  /// The level whose kernels run.
  IsaLevel isa() const noexcept { return level_; }
  std::string describe() const;

 private:
  CpuBackend(const Context& context, IsaLevel level, const cpu::KernelTable& kernels,
             const cpu::TileTable* tiles) noexcept
      : context_(context), level_(level), kernels_(&kernels), tiles_(tiles) {}

  Context context_;
  IsaLevel level_;
  const cpu::KernelTable* kernels_;
  const cpu::TileTable* tiles_;  // of level amx, or null
};

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/backends/cpu/cpu_backend.ipp>
#include <corbel/backends/cpu/levels/base.hpp>
#if defined(__x86_64__)
#include <corbel/backends/cpu/levels/amx.hpp>
#include <corbel/backends/cpu/levels/avx2.hpp>
#include <corbel/backends/cpu/levels/avx512.hpp>
#endif
#endif
