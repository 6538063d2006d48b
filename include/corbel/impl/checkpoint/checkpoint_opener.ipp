// Opening of checkpoint.hpp: which files make up a model, and the checks between them.
#pragma once

#include <corbel/checkpoint/bounded_reader.hpp>
#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/checkpoint/gguf_reader.hpp>
#include <corbel/checkpoint/safetensors_reader.hpp>
#include <corbel/detail/utf8.hpp>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>

CORBEL_NAMESPACE_BEGIN

namespace detail {

inline constexpr std::size_t kReadWindow = 64 << 10;

// A name in front of a message: long ones are cut, so that the message itself stays.
inline std::string place_of(std::string_view name) { return name.empty() ? "\"\"" : printable(name, 200); }

// A file with tensors, open.
struct CheckpointPart {
  std::string place;                         // name in messages
  std::span<const std::byte> memory;         // the whole file, where it is in memory
  std::shared_ptr<const void> mapping;       // keeps `memory` of a mapped file
  std::shared_ptr<const FileReader> reader;  // else
  std::uint64_t size() const noexcept { return reader != nullptr ? reader->size() : memory.size(); }
};

}  // namespace detail

struct Checkpoint::State {
  std::string name;
  CheckpointFormat format = CheckpointFormat::kGguf;
  std::uint32_t version = 1;
  std::uint64_t file_bytes = 0;
  std::vector<detail::CheckpointPart> parts;
  std::vector<CheckpointFile> files;
  Metadata metadata;
  std::vector<TensorInfo> tensors;
  std::vector<std::uint32_t> by_name;  // indices of tensors, sorted by name
  std::shared_ptr<const FolderReader> folder;
  std::vector<std::string> documents;  // sorted
  CheckpointLimits limits;
  std::optional<json::Value> config;
};

namespace detail {

inline bool is_template_document(std::string_view name) noexcept {
  return name == "chat_template.jinja" || (name.starts_with("additional_chat_templates/") && name.ends_with(".jinja"));
}

inline bool is_vocabulary_document(std::string_view name) noexcept {
  static constexpr std::string_view kNames[] = {"tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt",
                                                "vocab.txt"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

inline bool is_document(std::string_view name) noexcept {
  static constexpr std::string_view kNames[] = {
      "config.json",       "generation_config.json", "tokenizer_config.json", "special_tokens_map.json",
      "added_tokens.json", "chat_template.json",     "quantize_config.json",  "quant_config.json"};
  return is_template_document(name) || is_vocabulary_document(name) ||
         std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Formats that run code when they are read.
inline bool is_pickle_name(std::string_view name) noexcept {
  static constexpr std::string_view kEndings[] = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"};
  return std::any_of(std::begin(kEndings), std::end(kEndings),
                     [&](std::string_view end) { return name.ends_with(end); });
}

inline Status pickle_error() {
  return {Errc::kUnsupported,
          "a pickle file, which is never read because reading it runs code; use the safetensors version of the model "
          "(model.safetensors)"};
}

inline constexpr std::string_view kIndexEnding = ".safetensors.index.json";

// "name-00002-of-00003.gguf".
struct SplitName {
  std::string prefix;  // "name"
  std::uint32_t number = 0;
  std::uint32_t count = 0;

  std::string of(std::uint32_t part) const { return prefix + "-" + five(part) + "-of-" + five(count) + ".gguf"; }

 private:
  static std::string five(std::uint32_t number) {
    const std::string digits = std::to_string(number);
    return std::string(5 - std::min<std::size_t>(5, digits.size()), '0') + digits;
  }
};

inline std::optional<SplitName> parse_split_name(std::string_view name) {
  static constexpr std::size_t kLength = std::string_view("-00001-of-00001.gguf").size();
  if (name.size() < kLength) return std::nullopt;
  const std::string_view end = name.substr(name.size() - kLength);
  if (end[0] != '-' || end.substr(6, 4) != "-of-" || end.substr(15) != ".gguf") return std::nullopt;
  SplitName result;
  for (std::size_t i = 1; i < 15; ++i) {
    if (i >= 6 && i < 10) continue;
    if (end[i] < '0' || end[i] > '9') return std::nullopt;
    std::uint32_t& target = i < 6 ? result.number : result.count;
    target = 10 * target + static_cast<std::uint32_t>(end[i] - '0');
  }
  result.prefix = name.substr(0, name.size() - kLength);
  return result;
}

class CheckpointOpener {
 public:
  CheckpointOpener(const Context& context, const OpenOptions& options, std::string_view name)
      : context_(context), options_(options), state_(std::make_shared<Checkpoint::State>()) {
    state_->name = name;
    state_->limits = options.limits;
  }

  // A path of the operating system.
  Result<Checkpoint> path() {
    const std::string& path = state_->name;
    if (is_folder(path)) {
      base_ = path_in(path, "");
      disk_ = std::make_shared<DiskFolder>(path, options_.follow_links);
      state_->folder = disk_;
      return placed(from_folder({}));
    }
    const std::size_t slash = path.rfind('/');
    const std::string file = slash == std::string::npos ? path : path.substr(slash + 1);
    if (slash != std::string::npos) base_ = path.substr(0, slash + 1);
    // The file itself was named by the host, so links are followed; what is found beside it was not.
    disk_ = std::make_shared<DiskFolder>(base_.empty() ? "." : base_, options_.follow_links);
    state_->folder = disk_;
    CORBEL_ASSIGN_OR_RETURN(CheckpointPart part, placed(open_path(path)));
    return from_file(file, std::move(part));
  }

  // A folder of the host's.
  Result<Checkpoint> folder(std::shared_ptr<const FolderReader> folder, std::string_view file) {
    state_->folder = std::move(folder);
    base_ = state_->name + "/";
    if (file.empty()) return placed(from_folder({}));
    CORBEL_ASSIGN_OR_RETURN(CheckpointPart part, open_part(std::string(file)));
    return from_file(std::string(file), std::move(part));
  }

  // A single file without anything beside it.
  Result<Checkpoint> lone(CheckpointPart part) {
    part.place = state_->name;
    CORBEL_ASSIGN_OR_RETURN(const bool safetensors, placed(is_safetensors(state_->name, part)));
    if (safetensors) return safetensors_files({}, std::move(part));
    return gguf_files({}, std::move(part));
  }

 private:
  Status placed(const Status& status) const { return status.with_place(place_of(state_->name)); }
  template <class T>
  Result<T> placed(Result<T> result) const {
    return result.ok() ? std::move(result) : Result<T>(result.status().with_place(place_of(state_->name)));
  }
  template <class T>
  static Result<T> placed(Result<T> result, const std::string& place) {
    return result.ok() ? std::move(result) : Result<T>(result.status().with_place(place_of(place)));
  }

  Result<CheckpointPart> open_path(const std::string& path) const {
    CheckpointPart part;
    part.place = path;
    if (options_.map) {
      CORBEL_ASSIGN_OR_RETURN(MappedFile file, map_file(path));
      part.memory = file.bytes;
      part.mapping = std::move(file.keep);
    } else {
      CORBEL_ASSIGN_OR_RETURN(part.reader, open_file(path));
    }
    return part;
  }

  // A file of the folder. Errors name it.
  Result<CheckpointPart> open_part(const std::string& name) const {
    CheckpointPart part;
    part.place = base_ + name;
    if (options_.map && disk_ != nullptr) {
      CORBEL_ASSIGN_OR_RETURN(MappedFile file, placed(disk_->map(name), part.place));
      part.memory = file.bytes;
      part.mapping = std::move(file.keep);
      return part;
    }
    CORBEL_ASSIGN_OR_RETURN(part.reader, placed(state_->folder->open(name), part.place));
    if (part.reader == nullptr)
      return Status(Errc::kIoOpen, "the folder gave no reader").with_place(place_of(part.place));
    return part;
  }

  // Calls read(reader), which answers with a Result, on the start of a file.
  template <class Read>
  auto read_head(const CheckpointPart& part, Read read) const -> decltype(read(std::declval<BoundedReader&>())) {
    const auto explained = [&](auto result) {
      if (!result.ok()) result = explain(part, result.status());
      return placed(std::move(result), part.place);
    };
    if (part.reader == nullptr) {
      BoundedReader reader(part.memory);
      return explained(read(reader));
    }
    const Result<Allocation> window = context_.allocate(kReadWindow, "the window for reading a file's head");
    if (!window.ok()) return window.status().with_place(place_of(part.place));
    BoundedReader reader(*part.reader, {window->data(), window->size()});
    return explained(read(reader));
  }

  // What a file that could not be read usually is.
  static Status explain(const CheckpointPart& part, const Status& status) {
    if (status.code() == Errc::kTruncated && part.size() != 0) {
      return {Errc::kTruncated, std::string(status.message()) + "; is the download complete?"};
    }
    if (status.code() != Errc::kBadMagic && status.code() != Errc::kLimitExceeded) return status;
    std::array<std::byte, 24> start{};
    const auto known = std::span(start).first(static_cast<std::size_t>(std::min<std::uint64_t>(24, part.size())));
    if (part.reader == nullptr) {
      std::copy_n(part.memory.begin(), known.size(), known.begin());
    } else if (!read_exactly(*part.reader, 0, known).ok()) {
      return status;
    }
    std::string text;
    for (const std::byte byte : known) {
      const char c = static_cast<char>(byte);
      text += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    if (text.starts_with("version https://git-lfs")) {
      return {status.code(), "a Git LFS pointer and not the file itself; fetch that with \"git lfs pull\""};
    }
    if (text.starts_with("<!doctype html") || text.starts_with("<html")) {
      return {status.code(), "a web page and not a model file; the download went wrong"};
    }
    return status;
  }

  // By the name, else by the first bytes: a header of JSON behind its length.
  Result<bool> is_safetensors(std::string_view name, const CheckpointPart& part) const {
    if (name.ends_with(".safetensors")) return true;
    if (name.ends_with(".gguf") || part.size() < 10) return false;
    std::array<std::byte, 10> start{};
    if (part.reader == nullptr) {
      std::copy_n(part.memory.begin(), start.size(), start.begin());
    } else {
      CORBEL_RETURN_IF_ERROR(read_exactly(*part.reader, 0, start));
    }
    std::uint64_t length = 0;
    for (std::size_t i = 8; i-- > 0;) length = length << 8 | std::to_integer<std::uint64_t>(start[i]);
    return start[8] == std::byte{'{'} && (start[9] == std::byte{'"'} || start[9] == std::byte{'}'}) && length >= 2 &&
           length <= part.size() - 8;
  }

  Result<Checkpoint> from_file(const std::string& file, CheckpointPart part) {
    if (file.ends_with(kIndexEnding)) {
      CORBEL_RETURN_IF_ERROR(placed(look_around()));
      return sharded(part);
    }
    CORBEL_ASSIGN_OR_RETURN(const bool safetensors, is_safetensors(file, part));
    if (!safetensors && is_pickle_name(file)) return pickle_error().with_place(place_of(part.place));
    if (!safetensors) return gguf_files(file, std::move(part));
    CORBEL_RETURN_IF_ERROR(placed(look_around()));
    return safetensors_files({file}, std::move(part));
  }

  // Chooses the weights of a folder.
  Result<Checkpoint> from_folder(std::string) {
    CORBEL_RETURN_IF_ERROR(look_around());
    const auto has = [&](const char* name) { return std::binary_search(names_.begin(), names_.end(), name); };
    const char* const kSingle = "model.safetensors";
    const char* const kIndex = "model.safetensors.index.json";
    std::vector<std::string> safetensors;
    std::vector<std::string> ggufs;
    bool pickle = false;
    for (const std::string& name : names_) {
      if (name.ends_with(".safetensors")) safetensors.push_back(name);
      // Beside a model lies what turns its images or sounds into inputs.
      const bool of_other_inputs = name.find("mmproj") != std::string::npos;
      if (name.ends_with(".gguf") && !of_other_inputs) {
        const std::optional<SplitName> split = parse_split_name(name);
        if (!split || split->number <= 1) ggufs.push_back(name);
      }
      pickle = pickle || is_pickle_name(name);
    }
    const bool folder_of_the_hub = has("config.json");
    if (has(kSingle) || has(kIndex) || (folder_of_the_hub && safetensors.size() == 1)) {
      if (!folder_of_the_hub) return Status(Errc::kIoOpen, "config.json is missing in the folder");
      const std::string file = has(kSingle) ? kSingle : has(kIndex) ? kIndex : safetensors.front();
      CORBEL_ASSIGN_OR_RETURN(CheckpointPart part, open_part(file));
      if (file == kIndex) return sharded(part);
      return safetensors_files({file}, std::move(part));
    }
    if (ggufs.size() == 1) {
      CORBEL_ASSIGN_OR_RETURN(CheckpointPart part, open_part(ggufs.front()));
      return gguf_files(ggufs.front(), std::move(part));
    }
    if (ggufs.size() > 1) {
      return Status(Errc::kInvalidArgument, "the folder has " + std::to_string(ggufs.size()) +
                                                " GGUF models, name one of them: " + printable(listed(ggufs), 200));
    }
    if (!safetensors.empty()) {
      return Status(Errc::kIoOpen, folder_of_the_hub
                                       ? std::string(kIndex) + " is missing in the folder, which has " +
                                             std::to_string(safetensors.size()) + " .safetensors files"
                                       : "the folder has neither config.json nor model.safetensors, only " +
                                             printable(listed(safetensors), 200));
    }
    if (pickle) return pickle_error();
    return Status(Errc::kIoOpen, "no model in the folder: neither model.safetensors nor a .gguf file");
  }

  static std::string listed(const std::vector<std::string>& names) {
    std::string result;
    for (const std::string& name : names) result += (result.empty() ? "" : ", ") + name;
    return result;
  }

  // The names in the folder, and the documents among them.
  Status look_around() {
    CORBEL_ASSIGN_OR_RETURN(names_, state_->folder->list());
    std::sort(names_.begin(), names_.end());
    names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
    std::copy_if(names_.begin(), names_.end(), std::back_inserter(state_->documents),
                 [](const std::string& name) { return is_document(name); });
    return {};
  }

  Result<Checkpoint> gguf_files(const std::string& file, CheckpointPart part) {
    CORBEL_ASSIGN_OR_RETURN(GgufHead head, gguf_head(part));
    state_->format = CheckpointFormat::kGguf;
    state_->version = head.version;
    const std::string first_place = place_of(part.place);
    const Result<std::uint64_t> count = head.metadata.get_uint_or("split.count", 1);
    if (!count.ok()) return count.status().with_place(first_place);
    if (*count == 0) return Status(Errc::kBadValue, "metadata key \"split.count\" is 0").with_place(first_place);
    if (*count == 1) {
      add_part(file, std::move(part));
      state_->metadata = std::move(head.metadata);
      state_->tensors = std::move(head.tensors);
      state_->folder = nullptr;
      return finish();
    }
    const Status status = split_parts(file, *count, std::move(part), std::move(head));
    if (!status.ok()) return status;
    state_->folder = nullptr;
    return finish();
  }

  Result<GgufHead> gguf_head(const CheckpointPart& part) const {
    return read_head(part, [&](BoundedReader& reader) { return read_gguf_head(reader, options_.limits); });
  }

  // All parts of a split file, of which one is open.
  Status split_parts(const std::string& file, std::uint64_t count, CheckpointPart opened, GgufHead opened_head) {
    const std::string place = place_of(opened.place);
    const std::optional<SplitName> name = parse_split_name(file);
    if (!name || state_->folder == nullptr) {
      return Status(
                 Errc::kUnsupported,
                 "one part of a model split into " + std::to_string(count) +
                     " files: expected a name that ends with \"-00001-of-" +
                     SplitName{{}, 0, static_cast<std::uint32_t>(std::min<std::uint64_t>(count, 99999))}.of(1).substr(
                         10) +
                     "\", with the others beside it")
          .with_place(place);
    }
    if (count != name->count) {
      return Status(Errc::kBadValue, "metadata key \"split.count\" is " + std::to_string(count) +
                                         ", the file's name says " + std::to_string(name->count))
          .with_place(place);
    }
    if (name->number == 0 || name->number > name->count) {
      return Status(Errc::kBadValue, "part " + std::to_string(name->number) + " of " + std::to_string(name->count))
          .with_place(place);
    }
    if (count > options_.limits.files) {
      return Status(Errc::kLimitExceeded,
                    std::to_string(count) + " files, the limit is " + std::to_string(options_.limits.files))
          .with_place(place);
    }
    std::uint64_t total = 0;
    std::vector<std::vector<TensorInfo>> tensors;
    for (std::uint32_t number = 1; number <= name->count; ++number) {
      const std::string part_name = name->of(number);
      CheckpointPart part;
      GgufHead head;
      if (number == name->number) {
        part = std::move(opened);
        head = std::move(opened_head);
      } else {
        CORBEL_ASSIGN_OR_RETURN(part, open_part(part_name));
        CORBEL_ASSIGN_OR_RETURN(head, gguf_head(part));
      }
      const std::string part_place = place_of(part.place);
      Status status = check_part(head.metadata, number - 1, name->count);
      if (!status.ok()) return status.with_place(part_place);
      for (TensorInfo& tensor : head.tensors) tensor.file = number - 1;
      total += head.tensors.size();
      tensors.push_back(std::move(head.tensors));
      add_part(part_name, std::move(part));
      if (number == 1) {
        state_->metadata = std::move(head.metadata);
        state_->version = head.version;
      }
    }
    const std::uint64_t announced = *state_->metadata.get_uint_or("split.tensors.count", total);
    if (announced != total) {
      return placed(Status(Errc::kShapeMismatch, "the parts have " + std::to_string(total) +
                                                     " tensors, metadata key \"split.tensors.count\" is " +
                                                     std::to_string(announced)));
    }
    if (total > options_.limits.tensors) {
      return placed(Status(Errc::kLimitExceeded, std::to_string(total) + " tensors, the limit is " +
                                                     std::to_string(options_.limits.tensors)));
    }
    state_->tensors.reserve(static_cast<std::size_t>(total));
    for (std::vector<TensorInfo>& part : tensors) {
      std::move(part.begin(), part.end(), std::back_inserter(state_->tensors));
    }
    return {};
  }

  // The keys of one part against those of the first.
  Status check_part(const Metadata& metadata, std::uint64_t number, std::uint64_t count) const {
    const auto check = [&](const char* key, std::uint64_t expected) -> Status {
      CORBEL_ASSIGN_OR_RETURN(const std::uint64_t found, metadata.get_uint(key));
      if (found == expected) return {};
      return {Errc::kBadValue, std::string("metadata key \"") + key + "\" is " + std::to_string(found) + ", expected " +
                                   std::to_string(expected)};
    };
    CORBEL_RETURN_IF_ERROR(check("split.no", number));
    CORBEL_RETURN_IF_ERROR(check("split.count", count));
    CORBEL_RETURN_IF_ERROR(metadata.get_uint_or("split.tensors.count", 0).status());
    if (number == 0) return {};
    for (const char* key : {"general.architecture", "general.name", "split.tensors.count"}) {
      const MetaValue* first = state_->metadata.find(key);
      const MetaValue* here = metadata.find(key);
      if (first == nullptr || here == nullptr) continue;
      const bool number_key = first->as_uint().ok() && here->as_uint().ok();
      const bool same =
          number_key ? *first->as_uint() == *here->as_uint() : std::ranges::equal(first->raw(), here->raw());
      if (!same) {
        return {Errc::kShapeMismatch, std::string("a part of another model: metadata key \"") + key +
                                          "\" differs from that of the first part"};
      }
    }
    return {};
  }

  void add_part(std::string name, CheckpointPart part) {
    state_->files.push_back({std::move(name), part.size()});
    state_->file_bytes += part.size();
    state_->parts.push_back(std::move(part));
  }

  Result<SafetensorsHead> safetensors_head(const CheckpointPart& part) const {
    return read_head(part, [&](BoundedReader& reader) { return read_safetensors_head(reader, options_.limits); });
  }

  // One safetensors file; `file` is empty where it is not in a folder.
  Result<Checkpoint> safetensors_files(const std::string& file, CheckpointPart part) {
    state_->format = CheckpointFormat::kSafetensors;
    CORBEL_ASSIGN_OR_RETURN(SafetensorsHead head, safetensors_head(part));
    add_part(file, std::move(part));
    state_->metadata = std::move(head.metadata);
    state_->tensors = std::move(head.tensors);
    CORBEL_RETURN_IF_ERROR(placed(read_config()));
    return finish();
  }

  // The files of an index.
  Result<Checkpoint> sharded(const CheckpointPart& index_file) {
    state_->format = CheckpointFormat::kSafetensors;
    CORBEL_ASSIGN_OR_RETURN(
        const SafetensorsIndex index, read_head(index_file, [&](BoundedReader& reader) -> Result<SafetensorsIndex> {
          if (reader.size() > options_.limits.safetensors_header_bytes) {
            return Status(Errc::kLimitExceeded, "an index of " + std::to_string(reader.size()) +
                                                    " bytes, the limit is " +
                                                    std::to_string(options_.limits.safetensors_header_bytes));
          }
          CORBEL_ASSIGN_OR_RETURN(const std::string text, reader.text(reader.size(), "index"));
          return parse_safetensors_index(text, options_.limits);
        }));
    std::vector<std::vector<TensorInfo>> tensors;
    std::size_t total = 0;
    for (const std::string& file : index.files) {
      Result<CheckpointPart> opened = open_part(file);
      if (!opened.ok() && opened.status().code() == Errc::kIoOpen) {
        return Status(Errc::kIoOpen, std::string(opened.status().message()) +
                                         "; the index names this file: is the download complete?");
      }
      if (!opened.ok()) return opened.status();
      CheckpointPart part = *std::move(opened);
      CORBEL_ASSIGN_OR_RETURN(SafetensorsHead head, safetensors_head(part));
      if (tensors.empty()) state_->metadata = std::move(head.metadata);
      for (TensorInfo& tensor : head.tensors) tensor.file = static_cast<std::uint32_t>(tensors.size());
      total += head.tensors.size();
      if (total > options_.limits.safetensors_tensors) {
        return placed(Status(Errc::kLimitExceeded, "more than " + std::to_string(options_.limits.safetensors_tensors) +
                                                       " tensors in the shards, the limit"));
      }
      tensors.push_back(std::move(head.tensors));
      add_part(file, std::move(part));
    }
    state_->tensors.reserve(total);
    for (std::vector<TensorInfo>& part : tensors) {
      std::move(part.begin(), part.end(), std::back_inserter(state_->tensors));
    }
    CORBEL_ASSIGN_OR_RETURN(Checkpoint checkpoint, finish());
    if (Status status = check_index(index, checkpoint); !status.ok()) {
      return status.with_place(place_of(index_file.place));
    }
    CORBEL_RETURN_IF_ERROR(placed(read_config()));
    return checkpoint;
  }

  // Index and shards name the same tensors in the same files.
  static Status check_index(const SafetensorsIndex& index, const Checkpoint& checkpoint) {
    for (const SafetensorsIndex::Entry& entry : index.entries) {
      const TensorInfo* tensor = checkpoint.find_tensor(entry.tensor);
      if (tensor != nullptr && tensor->file == entry.file) continue;
      return {Errc::kMissingTensor,
              "weight_map: tensor \"" + printable(entry.tensor, 100) + "\" is not in " +
                  printable(index.files[entry.file], 100) +
                  (tensor == nullptr ? std::string() : ", but in " + printable(index.files[tensor->file], 100))};
    }
    return {};  // tensors that the index does not name stay usable: names are unique over all shards
  }

  Status read_config() {
    const char* const kConfig = "config.json";
    if (!std::binary_search(state_->documents.begin(), state_->documents.end(), kConfig)) return {};
    const Checkpoint checkpoint(state_);
    Result<json::Value> config = checkpoint.parse_document(kConfig);
    if (!config.ok()) return config.status();
    if (!config->is_object()) return {Errc::kTypeMismatch, "config.json: expected an object"};
    for (const char* key : {"auto_map", "trust_remote_code"}) {
      if (config->find(key) == nullptr) continue;
      context_.log(LogLevel::kWarning, printable(state_->name, 200) + ": config.json asks for code of its own (" + key +
                                           "); it is never run");
    }
    state_->config = *std::move(config);
    return {};
  }

  // Sorts the names.
  Result<Checkpoint> finish() {
    const std::vector<TensorInfo>& tensors = state_->tensors;
    std::vector<std::uint32_t>& order = state_->by_name;
    order.resize(tensors.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return tensors[a].name < tensors[b].name; });
    const auto twice = std::adjacent_find(order.begin(), order.end(),
                                          [&](auto a, auto b) { return tensors[a].name == tensors[b].name; });
    if (twice != order.end()) {
      const auto file = [&](std::uint32_t index) { return printable(state_->files[tensors[index].file].name, 100); };
      return placed(Status(Errc::kDuplicate, "tensor \"" + printable(tensors[*twice].name, 100) + "\" is in " +
                                                 file(twice[0]) + " and in " + file(twice[1])));
    }
    return Checkpoint(state_);
  }

  const Context& context_;
  const OpenOptions& options_;
  std::shared_ptr<Checkpoint::State> state_;
  std::shared_ptr<const DiskFolder> disk_;  // where the folder is one of the operating system
  std::string base_;                        // in front of a file's name in messages
  std::vector<std::string> names_;          // of the folder, sorted
};

}  // namespace detail
CORBEL_NAMESPACE_END
