// The hardware abstraction layer: what a type must provide to be a backend. docs/how-to/add-a-backend.md walks through
// an example.
//
// A backend owns device memory (Buffer), prepared weights (Weight) and queues (Stream). The host never touches a
// Buffer: it uploads, runs programs, and downloads; results exist once synchronize() has returned. Work of one stream
// takes effect in the order in which it was enqueued.
#pragma once

#include <corbel/config.hpp>
#include <corbel/context.hpp>
#include <corbel/detail/digest.hpp>
#include <corbel/error.hpp>
#include <corbel/hal/batch.hpp>
#include <corbel/hal/kv.hpp>
#include <corbel/hal/program.hpp>
#include <corbel/hal/weights.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

CORBEL_NAMESPACE_BEGIN
namespace hal {

/// Everything that one run of a program reads and writes. All pointers stay valid until the stream is synchronized.
template <class B>
struct Bindings {
  const Program* program = nullptr;
  std::span<const typename B::Weight> weights;  ///< prepared from program->weights, same order
  const ArenaPlan* arena_plan = nullptr;
  typename B::Buffer* arena = nullptr;
  typename B::Buffer* workspace = nullptr;  ///< at least workspace_bytes(program, limits)
  const BatchLayout* batch_layout = nullptr;
  const typename B::Buffer* batch = nullptr;  ///< the uploaded batch
  const KvLayout* kv_layout = nullptr;
  typename B::Buffer* kv = nullptr;
};

/// The specification. B is movable; its members may be called from several threads unless noted; a Stream and the
/// buffers bound to its work belong to one thread at a time.
///
///   B::kName                 lower-case name, as users write it
///   B::Buffer                owning, movable device memory; bytes(); empty when default-constructed
///   B::Weight                owning, movable prepared weight; bytes() held on the device
///   B::Stream                owning, movable queue
///   create(context)          Errc::kUnsupported where the machine lacks what context.options() asks for
///   allocate(bytes, what)    uninitialised memory, 64-byte aligned, charged to the context's budget; kOutOfMemory
///   prepare(spec)            reads spec.parts in pieces and packs them; the sources are not used afterwards.
///                            kUnsupported for a type that it cannot use, kBadValue (tensor, block) for NaN or
///                            infinite scales, errors of the source. Peak memory: the packed bytes and some MiB.
///   weight_bytes(spec)       what prepare(spec) would hold, without reading
///   supports(op, program)    whether run() can execute the op; asked once when a model is built
///   workspace_bytes(p, l)    scratch that run() needs for any batch within the limits
///   kv_layout(spec)          the layout of one cache block
///   upload/download          copies; host memory must stay unchanged (upload) or untouched (download) until
///                            synchronize()
///   copy_kv_block            copies a whole block of the pool (copy-on-write)
///   run(stream, bindings)    enqueues the program; the number of rows and all else that varies is read from the
///                            batch buffer
///   synchronize(stream)      waits for everything enqueued; returns the first error
///   tune(weights)            not needed: called once a model's weights are prepared; may measure what is fast
///   describe()               one line for people: instruction set, threads, arithmetic
///
/// Positions not yet written in a cache block may hold any bits, NaN included: attention must not read them.
template <class B>
concept Backend = std::movable<B> && std::movable<typename B::Buffer> &&
    std::default_initializable<typename B::Buffer> && std::movable<typename B::Weight> &&
    std::movable<typename B::Stream> &&
    requires(B b, const B cb, const Context& context, typename B::Stream& stream, typename B::Buffer& buffer,
             const typename B::Buffer& const_buffer, const typename B::Weight& weight, const WeightSpec& weight_spec,
             const Op& op, const Program& program, const BatchLimits& limits, const KvSpec& kv_spec,
             const KvLayout& kv_layout, const Bindings<B>& bindings, std::uint64_t n, std::string_view text,
             const void* source, void* target, std::int32_t block) {
  { B::kName } -> std::convertible_to<const char*>;
  { B::create(context) } -> std::same_as<Result<B>>;
  { cb.allocate(n, text) } -> std::same_as<Result<typename B::Buffer>>;
  { const_buffer.bytes() } -> std::same_as<std::uint64_t>;
  { cb.prepare(weight_spec) } -> std::same_as<Result<typename B::Weight>>;
  { weight.bytes() } -> std::same_as<std::uint64_t>;
  { cb.weight_bytes(weight_spec) } -> std::same_as<std::uint64_t>;
  { cb.supports(op, program) } -> std::same_as<bool>;
  { cb.workspace_bytes(program, limits) } -> std::same_as<std::uint64_t>;
  { cb.kv_layout(kv_spec) } -> std::same_as<KvLayout>;
  { cb.make_stream() } -> std::same_as<Result<typename B::Stream>>;
  { cb.upload(stream, buffer, n, source, n) } -> std::same_as<Status>;
  { cb.download(stream, const_buffer, n, target, n) } -> std::same_as<Status>;
  { cb.copy_kv_block(stream, buffer, kv_layout, block, block) } -> std::same_as<Status>;
  { cb.run(stream, bindings) } -> std::same_as<Status>;
  { cb.synchronize(stream) } -> std::same_as<Status>;
  { cb.describe() } -> std::same_as<std::string>;
};

/// A backend whose prepared weights can be kept in a file between runs (LoadOptions::packed_cache). Vectors
/// (kUseVector) are never kept: ops may use their elements as numbers of columns, which no file can be trusted with.
///
///   packed_layout(specs)     a digest of how prepare() lays out weights of these specs: equal only where the same
///                            tensors give the same bytes. Reads no source.
///   packed_bytes(weight)     what to keep of a prepared weight: weight_bytes(spec) of them
///   adopt(spec, bytes, keep) the weight of `spec` from such bytes, at a multiple of 64, which live as long as `keep`.
///                            Whatever their values, running the weight does nothing worse than give wrong numbers.
template <class B>
concept KeepsPacked = Backend<B> &&
    requires(const B cb, std::span<const WeightSpec> specs, const WeightSpec& spec, const typename B::Weight& weight,
             std::span<const std::byte> bytes, std::shared_ptr<const void> keep) {
  { cb.packed_layout(specs) } -> std::same_as<detail::Digest>;
  { cb.packed_bytes(weight) } -> std::same_as<std::span<const std::byte>>;
  { cb.adopt(spec, bytes, keep) } -> std::same_as<Result<typename B::Weight>>;
};

}  // namespace hal
CORBEL_NAMESPACE_END
