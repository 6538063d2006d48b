// convert: writes a checkpoint again, in another container or with other types, tensor by tensor.
//
//   corbel::Status status = corbel::models::convert(checkpoint, "small.gguf", {.type = corbel::DType::kQ4_K});
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/config.hpp>
#include <corbel/dtype.hpp>
#include <corbel/error.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

CORBEL_NAMESPACE_BEGIN
namespace models {

struct ConvertOptions {
  /// The type of the matrices; vectors and routers of experts become float32, and matrices whose rows its blocks do not
  /// fit keep their type. Empty: types stay as they are, where the new container has them (else float32).
  std::optional<DType> type = {};
  /// Called with one line about what is left out or has another type than was asked for, one for each reason.
  std::function<void(std::string_view line)> say = {};
  /// Bytes of tensors written, of all; false ends the work with kCancelled.
  std::function<bool(std::uint64_t done, std::uint64_t total)> progress = {};
};

/// Writes `checkpoint` to `path`: to a GGUF file where it ends with ".gguf", to a safetensors file where it ends with
/// ".safetensors", else to a new folder as the Hugging Face Hub has it (endings of other files are refused). From a
/// Hugging Face folder to GGUF, names, layouts and keys become those of the family's GGUF files, with the tokenizer,
/// the chat templates, how the authors sample, and what else config.json and `__metadata__` (general.*) say; from GGUF
/// to a folder those of its folders, with config.json, tokenizer.json, the chat template and generation_config.json
/// made from the keys (models/folder_layout.hpp), and other keys in `__metadata__` of the weights (texts as they are,
/// others as JSON). Blocks that safetensors files do not have become float32. From GGUF to a safetensors file names
/// stay and all keys go to `__metadata__`. A safetensors file alone cannot be loaded, since it has no config.json:
/// say() names what is left behind. Reads and writes a few MiB at a time, and keeps a matrix or two where a family's
/// folders store them turned or mixed. The output has its name, and replaces a file of that name, only when it is
/// complete; nothing is left after a failure. Where a file's name is a symbolic link, the file that it leads to is
/// replaced, or made, and the link stays. Errors: kInvalidArgument (the output is the input, by whatever name, a folder
/// with files, a link in place of a folder, or has the ending of another kind of file), kIoOpen (also where a folder, a
/// pipe or a device has the file's name), kUnsupported (a type that cannot be encoded, what the other container cannot
/// say of the family, ...), those of reading and writing.
CORBEL_API Status convert(const Checkpoint& checkpoint, const std::string& path, const ConvertOptions& options = {});

}  // namespace models
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/models/convert.ipp>
#endif
