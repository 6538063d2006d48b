// From a checkpoint to the program that computes its logits: one builder for all rows of the architecture table.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/hal/program.hpp>
#include <corbel/models/model_spec.hpp>
#include <corbel/models/weight_source.hpp>

#include <cstdint>
#include <functional>
#include <memory>

CORBEL_NAMESPACE_BEGIN
namespace models {

/// What becomes of the inputs of linears whose quantization scheme rounds them.
enum class ActivationRounding : std::uint8_t {
  kNever,     ///< they stay float32: the more exact result
  kAsStored,  ///< they are rounded as the scheme says
};

/// The program in textbook form, before any pass. Checks that every tensor is there with the right shape:
/// missing_tensor, shape_mismatch, unsupported (a quantized norm, a rounding of inputs that no op can do), naming the
/// tensor. Weight sources read from the checkpoint and keep it alive.
CORBEL_API Result<hal::Program> build_program(const Checkpoint& checkpoint, const ModelSpec& spec,
                                              std::shared_ptr<const ReadObserver> observer = nullptr,
                                              ActivationRounding rounding = ActivationRounding::kNever);

}  // namespace models
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/models/build.ipp>
#endif
