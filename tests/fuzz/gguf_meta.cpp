// Target gguf_meta: the head of a GGUF file from a buffer, a reader of single bytes and one of pieces. What is accepted,
// written again, reads back equal.
#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/checkpoint/gguf_writer.hpp>

#include "fuzz/fuzz.hpp"
#include "fuzz/mutator.hpp"

CORBEL_FUZZ_MUTATOR(gguf)

using namespace corbel;
using namespace corbel_fuzz;

namespace {

Result<Checkpoint> open(std::span<const std::byte> bytes, const Context& context) {
  const AllocationBound bound(parse_bound(bytes.size()));
  return open_in_every_mode(bytes, [&](std::shared_ptr<const FileReader> reader) {
    return reader == nullptr ? Checkpoint::from_memory(bytes, context, {}, "x.gguf")
                             : Checkpoint::from_reader(std::move(reader), context, {}, "x.gguf");
  });
}

std::span<const std::byte> tensor_bytes(std::span<const std::byte> file, const TensorInfo& tensor) {
  FUZZ_CHECK(tensor.offset <= file.size() && tensor.bytes <= file.size() - tensor.offset, tensor.name);
  return file.subspan(static_cast<std::size_t>(tensor.offset), static_cast<std::size_t>(tensor.bytes));
}

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

bool same_value(const MetaValue& a, const MetaValue& b) {
  if (a.type() != b.type() || a.element_type() != b.element_type() || a.size() != b.size()) return false;
  if (!same_bytes(a.raw(), b.raw())) return false;
  if (!a.is_array() || a.element_type() != MetaType::kString) return true;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a.string_at(i) != b.string_at(i)) return false;
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Context context({.threads = 1});
  const std::span<const std::byte> file = bytes_of(data, size);
  const Result<Checkpoint> first = open(file, context);
  if (!first.ok()) return 0;

  GgufWriter writer(first->format_version());
  for (const Metadata::Entry& entry : first->metadata().entries()) writer.metadata().set(entry.key, entry.value);
  for (const TensorInfo& tensor : first->tensors()) {
    const std::span<const std::byte> bytes = tensor_bytes(file, tensor);
    const Status added = writer.add_tensor(tensor.name, tensor.shape, tensor.ggml_type, {bytes.begin(), bytes.end()});
    FUZZ_CHECK(added.ok(), added.message());
    FUZZ_CHECK(first->find_tensor(tensor.name) == &tensor, tensor.name);
  }
  const Result<std::vector<std::byte>> again = writer.to_bytes();
  FUZZ_CHECK(again.ok(), again.status().message());
  const Result<Checkpoint> second = open(*again, context);
  FUZZ_CHECK(second.ok(), second.status().message());

  FUZZ_CHECK(second->format_version() == first->format_version(), "");
  const auto keys = first->metadata().entries();
  FUZZ_CHECK(keys.size() == second->metadata().entries().size(), "");
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Metadata::Entry& other = second->metadata().entries()[i];
    FUZZ_CHECK(keys[i].key == other.key && same_value(keys[i].value, other.value), other.key);
  }
  FUZZ_CHECK(first->tensors().size() == second->tensors().size(), "");
  for (std::size_t i = 0; i < first->tensors().size(); ++i) {
    const TensorInfo& a = first->tensors()[i];
    const TensorInfo& b = second->tensors()[i];
    FUZZ_CHECK(a.name == b.name && a.shape == b.shape && a.ggml_type == b.ggml_type && a.bytes == b.bytes, a.name);
    FUZZ_CHECK(same_bytes(tensor_bytes(file, a), tensor_bytes(*again, b)), a.name);
  }
  return 0;
}
