// How a GGUF file of a family is written as a Hugging Face folder: config.json, the tokenizer's documents, names, and
// where the rows go.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/models/gguf_layout.hpp>

#include <string>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {

struct FolderLayout {
  /// Names and texts of the documents: config.json first.
  std::vector<std::pair<std::string, std::string>> documents;
  std::vector<GgufTensorPlan> tensors;  ///< under the family's names in folders
  std::vector<std::string> notes;       ///< lines about what the folder does not have
};

/// The plan for a GGUF checkpoint, which must outlive it and is read by one thread at a time. The family is that of
/// general.architecture; of families that share one there, mixtral, olmo2 and deepseek_v3 are told by what they have.
/// kUnsupported for what config.json of the family cannot say, or its folders cannot hold, named; the errors of
/// read_model_spec. A tokenizer that tokenizer.json cannot say is left out, with a note.
CORBEL_API Result<FolderLayout> plan_folder_layout(const Checkpoint& checkpoint);

/// tokenizer.json and tokenizer_config.json (names and texts) of the tokenizer that the keys of a GGUF file describe,
/// read back and compared. kUnsupported for kinds other than "gpt2", "gemma4", "llama", "t5" and "bert", and where the
/// documents would give other ids; the errors of Tokenizer::from_checkpoint.
CORBEL_API Result<std::vector<std::pair<std::string, std::string>>> tokenizer_documents(const Metadata& metadata);

}  // namespace models
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/models/folder_layout.ipp>
#endif
