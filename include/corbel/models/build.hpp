// From a checkpoint to the program that computes its logits: one builder for all rows of the architecture table.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/hal/program.hpp>
#include <corbel/models/model_spec.hpp>

#include <cstdint>
#include <functional>
#include <memory>

CORBEL_NAMESPACE_BEGIN
namespace models {

/// Sees every read of weight bytes; false stops the load with Errc::kCancelled. May be called from any thread.
using ReadObserver = std::function<bool(std::uint64_t bytes)>;

/// The program in textbook form, before any pass. Checks that every tensor is there with the right shape:
/// missing_tensor, shape_mismatch, unsupported (a quantized norm), naming the tensor. Weight sources read from the
/// checkpoint and keep it alive.
CORBEL_API Result<hal::Program> build_program(const Checkpoint& checkpoint, const ModelSpec& spec,
                                              std::shared_ptr<const ReadObserver> observer = nullptr);

}  // namespace models
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/models/build.ipp>
#endif
