// RefBackend: the reference that other backends are tested against. Scalar C++, float32 between ops, double inside
// them.
//
// Every sum runs over its terms in one rising order (columns of a weight, elements of a head, positions), so the bits
// depend on the values alone: not on threads, the rows of the batch, chunks, the size of cache blocks, the compiler or
// its flags. ops.hpp holds the arithmetic, op by op.
#pragma once

#include <corbel/config.hpp>
#include <corbel/context.hpp>
#include <corbel/dtype.hpp>
#include <corbel/error.hpp>
#include <corbel/hal/backend.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN

/// The reference backend; the members are those of hal::Backend. Work runs at once, on the calling thread and the
/// context's executor, so a stream holds nothing and synchronize() has nothing to wait for. Const members may be called
/// from several threads.
class CORBEL_API RefBackend {
 public:
  static constexpr const char* kName = "ref";

  /// Memory that only the backend's own calls touch.
  class Buffer {
   public:
    std::uint64_t bytes() const noexcept { return memory_.size(); }

   private:
    friend class RefBackend;
    Allocation memory_;
  };

  /// A weight as it is stored in the checkpoint: matrices stay quantized and are dequantized row by row when used,
  /// vectors become float32.
  class Weight {
   public:
    std::uint64_t bytes() const noexcept { return memory_.size(); }
    std::uint64_t rows() const noexcept { return rows_; }
    std::uint64_t cols() const noexcept { return cols_; }
    /// Dequantizes row `index` (counted over all parts) into out [cols()].
    void read_row(std::uint64_t index, float* out) const noexcept;
    /// The elements of a vector [cols()].
    const float* vector() const noexcept { return reinterpret_cast<const float*>(memory_.data()); }

   private:
    friend class RefBackend;
    struct Part {
      const DTypeTraits* traits = nullptr;
      std::uint64_t rows = 0;
      std::uint64_t row_bytes = 0;
      std::uint64_t offset = 0;
    };
    Allocation memory_;
    std::vector<Part> parts_;  // of a matrix, top to bottom
    std::uint64_t rows_ = 0;
    std::uint64_t cols_ = 0;
  };

  class Stream {};

  static Result<RefBackend> create(const Context& context);

  Result<Buffer> allocate(std::uint64_t bytes, std::string_view what) const;

  /// Errors: kUnsupported where a row is not a whole number of blocks; kShapeMismatch where parts differ in columns;
  /// kBadValue (tensor, block) for a NaN or an infinity; kOverflow; kOutOfMemory; those of the sources.
  Result<Weight> prepare(const hal::WeightSpec& spec) const;
  /// Saturates where a size does not fit.
  std::uint64_t weight_bytes(const hal::WeightSpec& spec) const noexcept;

  bool supports(const hal::Op& op, const hal::Program& program) const noexcept;
  std::uint64_t workspace_bytes(const hal::Program& program, const hal::BatchLimits& limits) const noexcept;
  hal::KvLayout kv_layout(const hal::KvSpec& spec) const { return hal::make_kv_layout(spec); }

  Result<Stream> make_stream() const { return Stream(); }
  Status upload(Stream& stream, Buffer& to, std::uint64_t offset, const void* from, std::uint64_t bytes) const;
  Status download(Stream& stream, const Buffer& from, std::uint64_t offset, void* to, std::uint64_t bytes) const;
  Status copy_kv_block(Stream& stream, Buffer& kv, const hal::KvLayout& layout, std::int32_t from,
                       std::int32_t to) const;
  /// Runs the program. A batch that contradicts its layout, the weights or the cache is Errc::kInternal, found before
  /// anything is written.
  Status run(Stream& stream, const hal::Bindings<RefBackend>& bindings) const;
  Status synchronize(Stream&) const noexcept { return {}; }

  std::string describe() const;

 private:
  explicit RefBackend(const Context& context) : context_(context) {}

  Context context_;
};

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/backends/ref/ref_backend.ipp>
#endif
