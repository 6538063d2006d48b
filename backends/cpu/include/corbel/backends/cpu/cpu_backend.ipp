// Definitions of cpu_backend.hpp: the choice of a level, memory, weights, copies. prepare.hpp packs, runner.ipp runs
// programs.
#pragma once

#include <corbel/backends/cpu/amx/permission.hpp>
#include <corbel/backends/cpu/cpu_backend.hpp>
#include <corbel/backends/cpu/pack.hpp>
#include <corbel/backends/cpu/prepare.hpp>
#include <corbel/backends/cpu/runner.ipp>
#include <corbel/backends/cpu/tune.hpp>
#include <corbel/detail/cpu_features.hpp>
#include <corbel/detail/fp_environment.hpp>
#include <corbel/detail/guard.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <utility>
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

CORBEL_NAMESPACE_BEGIN

static_assert(hal::Backend<CpuBackend>);

namespace cpu {

/// The kernels of a level, but for what amx has on tiles.
inline const KernelTable& kernels_of([[maybe_unused]] IsaLevel level) noexcept {
#if defined(__x86_64__)
  if (level >= IsaLevel::kAvx512) return avx512_kernels();
  if (level == IsaLevel::kAvx2) return avx2_kernels();
#endif
  return base_kernels();
}

CORBEL_INLINE bool request_tiles() noexcept {
#if defined(__x86_64__) && defined(__linux__)
  // Threads that come here at once ask for the same: the answer is that of the process.
  static std::atomic<int> answer{-1};
  int granted = answer.load(std::memory_order_relaxed);
  if (granted < 0) {
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    const int host_errno = errno;
    granted = ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 1 : 0;
    errno = host_errno;
    answer.store(granted, std::memory_order_relaxed);
  }
  return granted != 0;
#else
  return false;
#endif
}

/// The tiles that level amx works with: none where the options forbid them, or where they are not to be had.
inline const TileTable* tiles_of([[maybe_unused]] const ContextOptions& options) noexcept {
#if defined(__x86_64__)
  const IsaLevel detected = detected_isa();
  if (options.isa < IsaLevel::kAmx || options.amx == AmxUse::kNever) return nullptr;
  if (options.amx == AmxUse::kEmulate) return detected >= IsaLevel::kAvx512 ? &emulated_tiles() : nullptr;
  if (detected >= IsaLevel::kAmx && request_tiles()) return &amx_tiles();
#endif
  return nullptr;
}

}  // namespace cpu

CORBEL_INLINE void CpuBackend::Weight::read_row(std::uint64_t index, float* out) const noexcept {
  const Segment* segment = segments_.data();
  while (index - segment->first_row >= segment->rows) ++segment;
  const std::uint64_t row = index - segment->first_row;
  cpu::read_packed_row(segment->dtype, segment->groups + row / cpu::kGroupRows * segment->group_bytes,
                       static_cast<std::size_t>(row % cpu::kGroupRows), static_cast<std::size_t>(cols_), out);
}

CORBEL_INLINE Result<CpuBackend> CpuBackend::create(const Context& context) {
  return detail::guard([&]() -> Result<CpuBackend> {
    const ContextOptions& options = context.options();
    const IsaLevel detected = detected_isa();
    const cpu::TileTable* const tiles = cpu::tiles_of(options);
    const IsaLevel level = tiles != nullptr ? IsaLevel::kAmx : std::min({options.isa, detected, IsaLevel::kAvx512});
    if (options.force_isa && level != options.isa) {
      const char* const why = options.amx == AmxUse::kNever ? ", whose tiles the options forbid,"
                              : detected == IsaLevel::kAmx  ? ", whose tiles the system refuses,"
                                                            : "";
      return Status(Errc::kUnsupported,
                    fmt::format("the instruction level {} is asked for, this CPU{} has {}", isa_name(options.isa), why,
                                isa_name(std::min(detected, IsaLevel::kAvx512))));
    }
    return CpuBackend(context, level, cpu::kernels_of(level), tiles);
  });
}

CORBEL_INLINE Result<CpuBackend::Buffer> CpuBackend::allocate(std::uint64_t bytes, std::string_view what) const {
  CORBEL_ASSIGN_OR_RETURN(Allocation memory, context_.allocate(bytes, what));
  Buffer buffer;
  buffer.memory_ = std::move(memory);
  return buffer;
}

CORBEL_INLINE std::uint64_t CpuBackend::weight_bytes(const hal::WeightSpec& spec) const noexcept {
  return cpu::packed_bytes(spec).value_or(std::numeric_limits<std::uint64_t>::max());
}

CORBEL_INLINE Result<CpuBackend::Weight> CpuBackend::prepare(const hal::WeightSpec& spec) const {
  return detail::guard([&]() -> Result<Weight> {
    const detail::ScopedFpEnvironment environment;
    if (spec.parts.empty()) return Status(Errc::kInternal, "a weight without tensors");
    for (const hal::WeightPart& part : spec.parts) CORBEL_RETURN_IF_ERROR(cpu::check_part(part, spec));
    const std::string& name = spec.parts.front().name;
    const std::optional<std::uint64_t> bytes = cpu::packed_bytes(spec);
    if (!bytes) return Status(Errc::kOverflow, fmt::format("tensor '{}': its bytes do not fit in 64 bits", name));
    const std::size_t alignment = *bytes >= 4 * Context::kHugePage ? Context::kHugePage : 64;
    CORBEL_ASSIGN_OR_RETURN(Allocation memory, context_.allocate(*bytes, name, alignment));

    Weight weight;
    weight.memory_ = std::move(memory);
    weight.bytes_ = {weight.memory_.data(), weight.memory_.size()};
    std::byte* next = weight.memory_.data();
    if ((spec.uses & hal::kUseVector) != 0) {
      weight.rows_ = 1;
      for (const hal::WeightPart& part : spec.parts) {
        CORBEL_RETURN_IF_ERROR(cpu::read_vector(context_, part, reinterpret_cast<float*>(next)));
        weight.cols_ += part.rows * part.cols;
        next += part.rows * part.cols * sizeof(float);
      }
      return weight;
    }
    weight.cols_ = spec.cols();
    for (const hal::WeightPart& part : spec.parts) {
      CORBEL_RETURN_IF_ERROR(cpu::Packer(context_, part, next).run());
      const std::uint64_t stride = cpu::group_bytes(part.dtype, part.cols);
      weight.segments_.push_back({part.dtype, part.rows, weight.rows_, stride, next});
      weight.rows_ += part.rows;
      next += (part.rows + cpu::kGroupRows - 1) / cpu::kGroupRows * stride;
    }
    return weight;
  });
}

CORBEL_INLINE detail::Digest CpuBackend::packed_layout(std::span<const hal::WeightSpec> specs) const {
  bool used[kNumDTypes] = {};
  for (const hal::WeightSpec& spec : specs)
    for (const hal::WeightPart& part : spec.parts)
      if ((spec.uses & hal::kUseVector) == 0) used[static_cast<std::size_t>(part.dtype)] = true;
  detail::DigestInput input;
  for (std::size_t type = 0; type < kNumDTypes; ++type)
    if (used[type]) input.add(std::uint64_t{type}).add(cpu::sample_of_layout(static_cast<DType>(type)));
  return input.digest();
}

CORBEL_INLINE Result<CpuBackend::Weight> CpuBackend::adopt(const hal::WeightSpec& spec,
                                                           std::span<const std::byte> bytes,
                                                           std::shared_ptr<const void> keep) const {
  return detail::guard([&]() -> Result<Weight> {
    if (spec.parts.empty()) return Status(Errc::kInternal, "a weight without tensors");
    for (const hal::WeightPart& part : spec.parts) CORBEL_RETURN_IF_ERROR(cpu::check_part(part, spec));
    const bool fits = cpu::packed_bytes(spec) == std::optional<std::uint64_t>(bytes.size()) &&
                      reinterpret_cast<std::uintptr_t>(bytes.data()) % 64 == 0;
    if ((spec.uses & hal::kUseVector) != 0 || !fits)
      return Status(Errc::kInvalidArgument, fmt::format("tensor '{}': not its packed bytes", spec.parts.front().name));
    Weight weight;
    weight.keep_ = std::move(keep);
    weight.bytes_ = bytes;
    weight.cols_ = spec.cols();
    const std::byte* next = bytes.data();
    for (const hal::WeightPart& part : spec.parts) {
      const std::uint64_t stride = cpu::group_bytes(part.dtype, part.cols);
      weight.segments_.push_back({part.dtype, part.rows, weight.rows_, stride, next});
      weight.rows_ += part.rows;
      next += (part.rows + cpu::kGroupRows - 1) / cpu::kGroupRows * stride;
    }
    return weight;
  });
}

CORBEL_INLINE bool CpuBackend::supports(const hal::Op& op, const hal::Program& program) const noexcept {
  const auto divides = [&](hal::ValueId id, std::uint32_t groups) {
    return groups != 0 && program.values[static_cast<std::size_t>(id)].width % groups == 0;
  };
  constexpr std::uint32_t kMaxExperts = 1u << 24;  // their numbers are exact in float32
  const hal::RouteSpec& route = op.route;
  switch (op.kind) {
    case hal::OpKind::kNorm:
      return op.norm.group != 0;
    case hal::OpKind::kRope:
      return op.rope.rotary_dim % 2 == 0 && op.rope.rotary_dim <= op.rope.head_dim;
    case hal::OpKind::kAttention:
      return op.attention.kv_heads != 0 && op.attention.heads % op.attention.kv_heads == 0 &&
             (!op.attention.values_in_keys || op.attention.value_width() <= op.attention.head_dim);
    case hal::OpKind::kGroupedLinear:
      return divides(op.in[0], op.groups) && divides(op.out, op.groups);
    case hal::OpKind::kJoin:
      return divides(op.in[0], op.groups) && divides(op.in[1], op.groups);
    case hal::OpKind::kPositionScale:
      return op.limit > 0;
    case hal::OpKind::kRoute:
      return route.top_k != 0 && route.groups != 0 && route.experts % route.groups == 0 && route.top_groups != 0 &&
             route.top_groups <= route.groups && route.top_k <= route.experts / route.groups * route.top_groups &&
             route.experts <= kMaxExperts;
    case hal::OpKind::kExpertLinear:
      return route.top_k != 0 && route.experts <= kMaxExperts && divides(op.out, route.top_k);
    case hal::OpKind::kExpertSum:
      return divides(op.in[0], route.top_k);
    default:
      return true;
  }
}

CORBEL_INLINE std::uint64_t CpuBackend::workspace_bytes(const hal::Program& program,
                                                        const hal::BatchLimits& limits) const noexcept {
  return cpu::workspace_bytes(program, limits, tiles_ == nullptr ? 0 : context_.concurrency());
}

CORBEL_INLINE Status CpuBackend::upload(Stream&, Buffer& to, std::uint64_t offset, const void* from,
                                        std::uint64_t bytes) const {
  if (offset > to.bytes() || bytes > to.bytes() - offset) {
    return Status(Errc::kInternal, fmt::format("upload of {} bytes to byte {} of {}", bytes, offset, to.bytes()));
  }
  if (bytes != 0) std::memcpy(to.memory_.data() + offset, from, bytes);
  return {};
}

CORBEL_INLINE Status CpuBackend::download(Stream&, const Buffer& from, std::uint64_t offset, void* to,
                                          std::uint64_t bytes) const {
  if (offset > from.bytes() || bytes > from.bytes() - offset) {
    return Status(Errc::kInternal, fmt::format("download of {} bytes from byte {} of {}", bytes, offset, from.bytes()));
  }
  if (bytes != 0) std::memcpy(to, from.memory_.data() + offset, bytes);
  return {};
}

CORBEL_INLINE Status CpuBackend::copy_kv_block(Stream&, Buffer& kv, const hal::KvLayout& layout, std::int32_t from,
                                               std::int32_t to) const {
  const std::uint64_t blocks = layout.block_bytes == 0 ? 0 : kv.bytes() / layout.block_bytes;
  const auto exists = [&](std::int32_t block) { return block >= 0 && static_cast<std::uint64_t>(block) < blocks; };
  if (!exists(from) || !exists(to)) {
    return Status(Errc::kInternal, fmt::format("copy of cache block {} to {} of {}", from, to, blocks));
  }
  std::byte* pool = kv.memory_.data();
  std::memmove(pool + static_cast<std::uint64_t>(to) * layout.block_bytes,
               pool + static_cast<std::uint64_t>(from) * layout.block_bytes, layout.block_bytes);
  return {};
}

CORBEL_INLINE Status CpuBackend::run(Stream&, const hal::Bindings<CpuBackend>& b) const {
  return detail::guard([&]() -> Status {
    const detail::ScopedFpEnvironment environment;
    const auto data = [](const Buffer* buffer) { return buffer == nullptr ? nullptr : buffer->memory_.data(); };
    const hal::BatchLimits& limits = b.batch_layout->limits;
    const std::uint64_t scratch = workspace_bytes(*b.program, limits);
    if (scratch != 0 && (b.workspace == nullptr || b.workspace->bytes() < scratch)) {
      return Status(Errc::kInternal, fmt::format("workspace of {} bytes, {} needed",
                                                 b.workspace == nullptr ? 0 : b.workspace->bytes(), scratch));
    }
    cpu::RunMemory memory;
    memory.program = b.program;
    memory.weights = b.weights.data();
    memory.arena_plan = b.arena_plan;
    memory.arena = data(b.arena);
    memory.workspace = data(b.workspace);
    memory.kv_layout = b.kv_layout;
    memory.kv = data(b.kv);
    memory.kv_bytes = b.kv == nullptr ? 0 : b.kv->bytes();
    const hal::BatchView batch(static_cast<const std::byte*>(data(b.batch)), *b.batch_layout);
    const cpu::Runner runner(context_, *kernels_, tiles_, memory, batch, limits);
    CORBEL_RETURN_IF_ERROR(runner.check());
    context_.run_many([](void* self) noexcept { static_cast<const cpu::Runner*>(self)->run(); },
                      const_cast<cpu::Runner*>(&runner));
    return {};
  });
}

CORBEL_INLINE void CpuBackend::tune(std::span<const Weight> weights) const noexcept {
  constexpr std::uint64_t kLeastBytes = 16 << 20;  // what is less is read from caches
  const TuningOptions& options = context_.options().tuning;
  const bool all_fixed = options.prefetch_distance != 0 && options.region_cost != 0 && options.streams != 0;
  if (!options.measure || context_.measured() != 0 || all_fixed) return;
  std::uint64_t bytes = 0;
  const Weight::Segment* largest = nullptr;
  std::size_t columns = 0;
  for (const Weight& weight : weights) {
    bytes += weight.bytes();
    for (const Weight::Segment& segment : weight.segments()) {
      if (!cpu::packed_format(segment.dtype).quantized()) continue;
      if (largest != nullptr && segment.rows * segment.group_bytes <= largest->rows * largest->group_bytes) continue;
      largest = &segment;
      columns = static_cast<std::size_t>(weight.cols());
    }
  }
  if (bytes < kLeastBytes) return;
  const detail::ScopedFpEnvironment environment;
  struct Measurement {
    cpu::Tuner tuner;
    const Weight::Segment* largest;
    std::size_t columns;
    cpu::Tuning tuning;
    static void run(void* self) noexcept {
      Measurement& m = *static_cast<Measurement*>(self);
      m.tuning = m.tuner.run(m.largest, m.columns);
    }
  } measurement = {cpu::Tuner(context_, *kernels_), largest, columns, {}};
  context_.run_many(&Measurement::run, &measurement);
  context_.set_measured(cpu::tuning_word(measurement.tuning));
}

CORBEL_INLINE std::string CpuBackend::describe_tuning() const {
  const cpu::Tuning tuning = cpu::tuning_of(context_), fixed;
  const TuningOptions& options = context_.options().tuning;
  const auto origin = [&](bool given, bool same) {
    return given ? "given" : !tuning.measured ? "not measured" : same ? "measured: as without" : "measured";
  };
  return fmt::format(
      "prefetch {} bytes ahead ({}), {} ({}), regions from {} operations on ({})", tuning.prefetch_distance,
      origin(options.prefetch_distance != 0, tuning.prefetch_distance == fixed.prefetch_distance),
      tuning.streams ? "streams" : "one stream", origin(options.streams != 0, tuning.streams == fixed.streams),
      tuning.region_cost, origin(options.region_cost != 0, tuning.region_cost == fixed.region_cost));
}

CORBEL_INLINE std::string CpuBackend::tuning_identity() const {
  constexpr int kVersion = 1;  // counted up with the kernels that are measured
  return fmt::format("tuning {}, {}, {}, {} threads", kVersion, detail::processor_name(), isa_name(level_),
                     context_.concurrency());
}

CORBEL_INLINE std::string CpuBackend::describe() const {
  const char* const prompts = tiles_ == nullptr                            ? ""
                              : context_.options().amx == AmxUse::kEmulate ? "; prompts on emulated tiles of bfloat16"
                                                                           : "; prompts on tiles of bfloat16";
  return fmt::format("cpu: {}, {} thread{}, int8 activations with one scale per 32 for quantized weights{}",
                     isa_name(level_), context_.concurrency(), context_.concurrency() == 1 ? "" : "s", prompts);
}

CORBEL_NAMESPACE_END
