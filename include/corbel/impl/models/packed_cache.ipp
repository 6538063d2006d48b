// Definitions of models/packed_cache.hpp.
#pragma once

#include <corbel/checkpoint/file.hpp>
#include <corbel/detail/checked.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/models/packed_cache.hpp>
#include <corbel/version.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <type_traits>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace models {

/// The file: a header, the table, and from a multiple of 4096 on the bytes of the weights, each at a multiple of 64.
/// Numbers are those of the machine.
struct PackedCache::Header {
  char magic[8] = {'C', 'O', 'R', 'B', 'E', 'L', 'P', 'W'};
  std::uint32_t version = 1;
  std::uint32_t order = 0x01020304;
  corbel::detail::Digest key;      // what the file is named after
  corbel::detail::Digest content;  // of the checkpoint's files
  std::uint64_t file_bytes = 0;
  std::uint64_t num_entries = 0;
  corbel::detail::Digest table;   // of the entries
  corbel::detail::Digest header;  // of all before it
};
struct PackedCache::Entry {
  std::uint64_t weight = 0;  // of the program
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  corbel::detail::Digest name;  // of what the weight is: its tensors, their types and shapes
  corbel::detail::Digest data;  // of the digests of its pieces
};

namespace packed_file {

/// Counted up where a loader makes other values of the same tensors (another order of rows, another rounding). How a
/// backend lays values out is in PackedIdentity::layout.
inline constexpr std::uint64_t kValuesVersion = 1;
inline constexpr std::uint64_t kPieceBytes = 1 << 20;  ///< that a digest is made of, and one task reads
inline constexpr std::size_t kRegionPieces = 64;       ///< between two questions whether to go on
inline constexpr std::uint64_t kDataAlignment = 4096;
inline constexpr std::uint64_t kWeightAlignment = 64;

inline std::uint64_t align(std::uint64_t offset, std::uint64_t to) noexcept { return (offset + to - 1) / to * to; }
inline Status cancelled() { return Status(Errc::kCancelled, "loading was stopped by the progress callback"); }

/// One piece of a file or of memory, to be read into `target` or found at `memory`.
struct Piece {
  std::size_t file = 0;
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
  const std::byte* memory = nullptr;
  std::byte* target = nullptr;
};

/// The pieces of `bytes` bytes.
template <class Add>
void each_piece(std::uint64_t bytes, const Add& add) {
  for (std::uint64_t offset = 0; offset < bytes; offset += kPieceBytes)
    add(offset, static_cast<std::size_t>(std::min(kPieceBytes, bytes - offset)));
}

/// Digests pieces on the context's threads. `read(piece, out)` fills `out` with a piece that has no memory.
template <class Read>
Result<std::vector<corbel::detail::Digest>> digest_pieces(const Context& context, const std::vector<Piece>& pieces,
                                                          const Read& read, const PackedCache::Proceed& proceed) {
  std::vector<corbel::detail::Digest> digests(pieces.size());
  const std::size_t num_workers = std::min(context.concurrency(), std::max<std::size_t>(pieces.size(), 1));
  const bool scratch_needed = std::any_of(pieces.begin(), pieces.end(), [](const Piece& piece) {
    return piece.memory == nullptr && piece.target == nullptr;
  });
  Allocation scratch;
  if (scratch_needed) {
    CORBEL_ASSIGN_OR_RETURN(scratch, context.allocate(num_workers * kPieceBytes, "reading the checkpoint"));
  }
  struct Worker {
    Status status;
    bool threw = false;
  };
  std::vector<Worker> workers(num_workers);
  for (std::size_t first = 0; first < pieces.size(); first += kRegionPieces) {
    const std::size_t end = std::min(first + kRegionPieces, pieces.size());
    std::atomic<std::size_t> next{first};
    const auto work = [&](std::size_t index) {
      for (std::size_t i = 0; (i = next.fetch_add(1, std::memory_order_relaxed)) < end;) {
        const Piece& piece = pieces[i];
        std::byte* const target = piece.target != nullptr ? piece.target : scratch.data() + index * kPieceBytes;
        if (piece.memory == nullptr) {
          workers[index].status = read(piece, std::span(target, piece.bytes));
          if (!workers[index].status.ok()) return;
        }
        digests[i] = corbel::detail::digest({piece.memory != nullptr ? piece.memory : target, piece.bytes});
      }
    };
    const auto guarded = [&](std::size_t index) noexcept {
#if CORBEL_HAS_EXCEPTIONS
      try {
        work(index);
      } catch (...) {  // of a host's own reader
        workers[index].threw = true;
      }
#else
      work(index);
#endif
    };
    context.run(
        num_workers,
        [](void* argument, std::size_t index) noexcept { (*static_cast<const decltype(guarded)*>(argument))(index); },
        const_cast<void*>(static_cast<const void*>(&guarded)));
    for (Worker& worker : workers) {
      if (worker.threw) return Status(Errc::kIoRead, "the reader threw an exception");
      if (!worker.status.ok()) return std::move(worker.status);
    }
    if (proceed && !proceed()) return cancelled();
  }
  return digests;
}

template <class T>
std::span<const std::byte> raw(const T& value) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}
template <class T>
std::span<const std::byte> raw(const std::vector<T>& values) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(std::span<const T>(values));
}

}  // namespace packed_file

CORBEL_INLINE Status PackedCache::make_key(const hal::Program& program, const PackedIdentity& identity) {
  using packed_file::raw;
  corbel::detail::DigestInput input;
  input.add("corbel packed weights").add(packed_file::kValuesVersion);
  input.add(CORBEL_VERSION_MAJOR).add(CORBEL_VERSION_MINOR).add(CORBEL_VERSION_PATCH);
  input.add(identity.backend).add(identity.layout).add(identity.options);
  names_.clear();
  for (std::size_t i = 0; i < program.weights.size(); ++i) {
    corbel::detail::DigestInput name;
    name.add(std::uint64_t{program.weights[i].uses}).add(bytes_[i]);
    for (const hal::WeightPart& part : program.weights[i].parts)
      name.add(part.name).add(std::string_view(traits(part.dtype).name)).add(part.rows).add(part.cols);
    names_.push_back(name.digest());
    input.add(names_.back());
  }

  // Of the files what is quick to read: everything before the tensors, and a little of each tensor.
  constexpr std::uint64_t kSample = 4096;
  const std::span<const CheckpointFile> files = checkpoint_->files();
  std::vector<std::uint64_t> heads;
  for (const CheckpointFile& file : files) heads.push_back(file.bytes);
  for (const TensorInfo& tensor : checkpoint_->tensors())
    if (tensor.file < heads.size()) heads[tensor.file] = std::min(heads[tensor.file], tensor.offset);
  std::vector<std::byte> buffer;
  const auto add = [&](std::size_t file, std::uint64_t offset, std::uint64_t bytes) -> Status {
    buffer.resize(static_cast<std::size_t>(bytes));
    CORBEL_RETURN_IF_ERROR(checkpoint_->read_file(file, offset, buffer));
    input.add(corbel::detail::digest(buffer));
    return {};
  };
  for (std::size_t i = 0; i < files.size(); ++i) {
    input.add(files[i].bytes);
    for (std::uint64_t at = 0; at < heads[i]; at += packed_file::kPieceBytes)
      CORBEL_RETURN_IF_ERROR(add(i, at, std::min(packed_file::kPieceBytes, heads[i] - at)));
  }
  for (const TensorInfo& tensor : checkpoint_->tensors()) {
    if (tensor.file >= files.size()) continue;
    input.add(tensor.name);
    const std::uint64_t bytes = std::min(kSample, tensor.bytes);
    CORBEL_RETURN_IF_ERROR(add(tensor.file, tensor.offset, bytes));
    CORBEL_RETURN_IF_ERROR(add(tensor.file, tensor.offset + (tensor.bytes - bytes) / 2, bytes));
  }
  for (const char* document : {"config.json", "quantize_config.json", "quant_config.json"}) {
    if (!checkpoint_->has_document(document)) continue;
    CORBEL_ASSIGN_OR_RETURN(const std::string text, checkpoint_->document(document));
    input.add(document).add(text);
  }
  key_ = input.digest();
  return {};
}

CORBEL_INLINE std::vector<FileStamp> PackedCache::stamps() const {
  std::vector<FileStamp> all;
  for (std::size_t i = 0; i < checkpoint_->files().size(); ++i) all.push_back(checkpoint_->file_stamp(i));
  return all;
}

CORBEL_INLINE Status PackedCache::digest_content(const Proceed& proceed) {
  if (have_content_) return {};
  corbel::detail::DigestInput all;
  for (std::size_t i = 0; i < checkpoint_->files().size(); ++i) {
    const std::span<const std::byte> memory = checkpoint_->file_memory(i);
    std::vector<packed_file::Piece> pieces;
    packed_file::each_piece(checkpoint_->files()[i].bytes, [&](std::uint64_t offset, std::size_t bytes) {
      const std::byte* const at = memory.empty() ? nullptr : memory.data() + static_cast<std::size_t>(offset);
      pieces.push_back({i, offset, bytes, at, nullptr});
    });
    CORBEL_ASSIGN_OR_RETURN(const std::vector<corbel::detail::Digest> digests,
                            packed_file::digest_pieces(
                                *context_, pieces,
                                [&](const packed_file::Piece& piece, std::span<std::byte> out) {
                                  return checkpoint_->read_file(piece.file, piece.offset, out);
                                },
                                proceed));
    all.add(checkpoint_->files()[i].bytes).add(corbel::detail::digest(packed_file::raw(digests)));
  }
  content_ = all.digest();
  have_content_ = true;
  write_seen();
  return {};
}

// "<path>.seen": the digest of the checkpoint, and the stamps that its files had when it was taken.
CORBEL_INLINE bool PackedCache::seen(const corbel::detail::Digest& content) const {
  const std::vector<FileStamp> now = stamps();
  if (std::any_of(now.begin(), now.end(), [](const FileStamp& stamp) { return !stamp.known(); })) return false;
  const std::span<const std::byte> expected = packed_file::raw(now);
  const Result<std::shared_ptr<const FileReader>> file = corbel::detail::open_file(path_ + ".seen");
  if (!file.ok() || (*file)->size() != sizeof(corbel::detail::Digest) * 2 + expected.size()) return false;
  std::vector<std::byte> bytes(static_cast<std::size_t>((*file)->size()));
  if (!corbel::detail::read_exactly(**file, 0, bytes).ok()) return false;
  corbel::detail::Digest stored[2];
  std::memcpy(stored, bytes.data(), sizeof stored);
  return stored[0] == content && stored[1] == corbel::detail::digest(expected) &&
         std::memcmp(bytes.data() + sizeof stored, expected.data(), expected.size()) == 0;
}

// Not for files that changed just now: they could change once more without another stamp. Nobody misses it.
CORBEL_INLINE void PackedCache::write_seen() const {
  constexpr std::int64_t kSettled = 2'000'000'000;
  const std::int64_t now =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::vector<FileStamp> all = stamps();
  if (all != first_stamps_ || !corbel::detail::make_folder(folder_).ok()) return;
  for (const FileStamp& stamp : all)
    if (!stamp.known() || std::max(stamp.changed_ns, stamp.modified_ns) > now - kSettled) return;
  const corbel::detail::Digest stored[2] = {content_, corbel::detail::digest(packed_file::raw(all))};
  Result<corbel::detail::OutputFile> file =
      corbel::detail::OutputFile::create(path_ + ".seen", corbel::detail::OutputFile::Links::kReplace);
  if (!file.ok() || !file->write(std::as_bytes(std::span(stored))).ok() || !file->write(packed_file::raw(all)).ok())
    return;
  static_cast<void>(file->commit());
}

CORBEL_INLINE std::uint64_t PackedCache::data_begin(std::size_t num_entries) noexcept {
  return packed_file::align(sizeof(Header) + num_entries * sizeof(Entry), packed_file::kDataAlignment);
}

CORBEL_INLINE Status PackedCache::read_table(const FileReader& file, Header& header, std::vector<Entry>& table) const {
  const auto refuse = [](const char* why) { return Status(Errc::kBadValue, why); };
  static_assert(sizeof(Header) == 96 && sizeof(Entry) == 56);
  if (file.size() < sizeof header) return refuse("too short");
  CORBEL_RETURN_IF_ERROR(
      corbel::detail::read_exactly(file, 0, std::as_writable_bytes(std::span<Header, 1>(&header, 1))));
  const Header expected;
  if (std::memcmp(header.magic, expected.magic, sizeof header.magic) != 0)
    return refuse("not a file of packed weights");
  if (header.version != expected.version || header.order != expected.order)
    return refuse("of another version or byte order");
  if (header.header != corbel::detail::digest(packed_file::raw(header).first(sizeof header - sizeof header.header)))
    return refuse("its header is damaged");
  if (header.key != key_) return refuse("has the key of another checkpoint");
  if (header.file_bytes != file.size()) return refuse("not as long as it says");

  // As many entries as there are weights to keep, in their order; each where it fits.
  if (header.num_entries > bytes_.size() || (header.file_bytes - sizeof header) / sizeof(Entry) < header.num_entries)
    return refuse("its table does not fit");
  table.resize(static_cast<std::size_t>(header.num_entries));
  CORBEL_RETURN_IF_ERROR(
      corbel::detail::read_exactly(file, sizeof header, std::as_writable_bytes(std::span<Entry>(table))));
  if (header.table != corbel::detail::digest(packed_file::raw(table))) return refuse("its table is damaged");
  // The places are those where write() puts them.
  std::size_t next = 0;
  std::uint64_t end = data_begin(table.size());
  for (std::size_t weight = 0; weight < bytes_.size(); ++weight) {
    if (bytes_[weight] == 0) continue;
    if (next == table.size()) return refuse("lacks a weight");
    const Entry& entry = table[next++];
    if (entry.weight != weight || entry.bytes != bytes_[weight] || entry.name != names_[weight])
      return refuse("has another weight");
    const std::optional<std::uint64_t> begin = corbel::detail::checked_align(end, packed_file::kWeightAlignment);
    const std::optional<std::uint64_t> after = begin ? corbel::detail::checked_add(*begin, entry.bytes) : std::nullopt;
    if (!after || entry.offset != *begin || *after > header.file_bytes) return refuse("has a weight in another place");
    end = *after;
  }
  if (next != table.size()) return refuse("has more weights");
  return end == header.file_bytes ? Status() : refuse("has bytes after its weights");
}

// Maps or reads the weights, and compares their digests.
CORBEL_INLINE Status PackedCache::bring(PackedUse use, const FileReader& file, const Header& header,
                                        const std::vector<Entry>& table, const Proceed& proceed) {
  std::byte* target = nullptr;
  const std::byte* data = nullptr;
  std::shared_ptr<const void> keep;
  if (use == PackedUse::kMap) {
    CORBEL_ASSIGN_OR_RETURN(corbel::detail::MappedFile mapped, corbel::detail::map_file(path_));
    // Another process may have put another file in this one's place.
    if (mapped.bytes.size() != header.file_bytes || std::memcmp(mapped.bytes.data(), &header, sizeof header) != 0)
      return Status(Errc::kBadValue, "was replaced meanwhile");
    data = mapped.bytes.data();
    keep = std::move(mapped.keep);
  } else {
    CORBEL_ASSIGN_OR_RETURN(Allocation memory,
                            context_->allocate(header.file_bytes, "packed weights", Context::kHugePage));
    auto held = std::make_shared<Allocation>(std::move(memory));
    data = target = held->data();
    keep = std::move(held);
  }
  std::vector<packed_file::Piece> pieces;
  for (const Entry& entry : table)
    packed_file::each_piece(entry.bytes, [&](std::uint64_t offset, std::size_t bytes) {
      const auto at = static_cast<std::size_t>(entry.offset + offset);
      pieces.push_back({0, entry.offset + offset, bytes, target == nullptr ? data + at : nullptr,
                        target == nullptr ? nullptr : target + at});
    });
  CORBEL_ASSIGN_OR_RETURN(const std::vector<corbel::detail::Digest> digests,
                          packed_file::digest_pieces(
                              *context_, pieces,
                              [&](const packed_file::Piece& piece, std::span<std::byte> out) {
                                return corbel::detail::read_exactly(file, piece.offset, out);
                              },
                              proceed));
  std::span<const corbel::detail::Digest> rest(digests);
  std::vector<std::span<const std::byte>> found(bytes_.size());
  for (const Entry& entry : table) {
    const auto count =
        static_cast<std::size_t>((entry.bytes + packed_file::kPieceBytes - 1) / packed_file::kPieceBytes);
    if (entry.data != corbel::detail::digest(std::as_bytes(rest.first(count))))
      return Status(Errc::kBadValue, "the bytes of a weight are damaged");
    rest = rest.subspan(count);
    found[static_cast<std::size_t>(entry.weight)] = {data + static_cast<std::size_t>(entry.offset),
                                                     static_cast<std::size_t>(entry.bytes)};
  }
  found_ = std::move(found);
  keep_ = std::move(keep);
  return {};
}

// False: there is no file.
CORBEL_INLINE Result<bool> PackedCache::load(PackedUse use, const Proceed& proceed) {
  const Result<std::shared_ptr<const FileReader>> file = corbel::detail::open_file(path_);
  if (!file.ok()) return false;
  Header header;
  std::vector<Entry> table;
  CORBEL_RETURN_IF_ERROR(read_table(**file, header, table));
  if (!seen(header.content)) {
    CORBEL_RETURN_IF_ERROR(digest_content(proceed));
    if (header.content != content_) return Status(Errc::kBadValue, "was made from another checkpoint");
  }
  CORBEL_RETURN_IF_ERROR(bring(use, **file, header, table, proceed));
  return true;
}

CORBEL_INLINE Result<PackedCache> PackedCache::open(const std::string& folder, PackedUse use,
                                                    const Checkpoint& checkpoint, const hal::Program& program,
                                                    PackedIdentity identity, const Context& context,
                                                    const Proceed& proceed) {
  PackedCache cache;
  cache.checkpoint_ = &checkpoint;
  cache.context_ = &context;
  cache.bytes_ = identity.bytes;
  cache.first_stamps_ = cache.stamps();
  const auto note = [&](LogLevel level, const std::string& text) {
    context.log(level, fmt::format("packed cache: {}: {}", corbel::detail::printable(folder, 200), text));
  };
  if (const Status status = cache.make_key(program, identity); !status.ok()) {
    note(LogLevel::kWarning, fmt::format("not used: {}", status.message()));
    return PackedCache();
  }
  const std::string name = to_hex(cache.key_) + ".packed";
  cache.folder_ = folder;
  cache.path_ = corbel::detail::path_in(folder, name);
  const Result<bool> loaded = cache.load(use, proceed);
  if (!loaded.ok() && loaded.status().code() == Errc::kCancelled) return loaded.status();
  if (!loaded.ok()) {
    note(LogLevel::kWarning, fmt::format("{} is not used: {}", name, loaded.status().message()));
  } else if (*loaded) {
    note(LogLevel::kInfo, (use == PackedUse::kMap ? "mapped " : "read ") + name);
  }
  return cache;
}

CORBEL_INLINE Status PackedCache::write(const std::function<std::span<const std::byte>(std::size_t weight)>& bytes_of,
                                        const Proceed& proceed) {
  CORBEL_RETURN_IF_ERROR(digest_content(proceed));
  if (stamps() != first_stamps_) return Status(Errc::kBadValue, "the checkpoint changed while it was loaded");

  Header header;
  header.key = key_;
  header.content = content_;
  std::vector<Entry> table;
  std::vector<packed_file::Piece> pieces;
  for (std::size_t weight = 0; weight < bytes_.size(); ++weight) {
    if (bytes_[weight] == 0) continue;
    const std::span<const std::byte> bytes = bytes_of(weight);
    if (bytes.size() != bytes_[weight]) return Status(Errc::kInternal, "a weight of another size than planned");
    table.push_back({weight, 0, bytes_[weight], names_[weight], {}});
    packed_file::each_piece(bytes.size(), [&](std::uint64_t offset, std::size_t count) {
      pieces.push_back({0, offset, count, bytes.data() + static_cast<std::size_t>(offset), nullptr});
    });
  }
  const auto no_read = [](const packed_file::Piece&, std::span<std::byte>) { return Status(); };
  CORBEL_ASSIGN_OR_RETURN(const std::vector<corbel::detail::Digest> digests,
                          packed_file::digest_pieces(*context_, pieces, no_read, proceed));
  std::uint64_t end = data_begin(table.size());
  const std::uint64_t begin = end;
  std::span<const corbel::detail::Digest> rest(digests);
  for (Entry& entry : table) {
    const auto count =
        static_cast<std::size_t>((entry.bytes + packed_file::kPieceBytes - 1) / packed_file::kPieceBytes);
    entry.data = corbel::detail::digest(std::as_bytes(rest.first(count)));
    rest = rest.subspan(count);
    entry.offset = packed_file::align(end, packed_file::kWeightAlignment);
    end = entry.offset + entry.bytes;
  }
  header.file_bytes = end;
  header.num_entries = table.size();
  header.table = corbel::detail::digest(packed_file::raw(table));
  header.header = corbel::detail::digest(packed_file::raw(header).first(sizeof header - sizeof header.header));

  CORBEL_RETURN_IF_ERROR(corbel::detail::make_folder(folder_));
  CORBEL_ASSIGN_OR_RETURN(corbel::detail::OutputFile file,
                          corbel::detail::OutputFile::create(path_, corbel::detail::OutputFile::Links::kReplace));
  constexpr std::byte kZeros[packed_file::kDataAlignment] = {};
  CORBEL_RETURN_IF_ERROR(file.write(packed_file::raw(header)));
  CORBEL_RETURN_IF_ERROR(file.write(packed_file::raw(table)));
  std::uint64_t at = sizeof header + table.size() * sizeof(Entry);
  CORBEL_RETURN_IF_ERROR(file.write(std::span(kZeros).first(static_cast<std::size_t>(begin - at))));
  at = begin;
  std::uint64_t asked = 0;
  for (const Entry& entry : table) {
    CORBEL_RETURN_IF_ERROR(file.write(std::span(kZeros).first(static_cast<std::size_t>(entry.offset - at))));
    const std::span<const std::byte> bytes = bytes_of(static_cast<std::size_t>(entry.weight));
    constexpr std::size_t kAtOnce = 16 << 20;
    for (std::size_t done = 0; done < bytes.size(); done += kAtOnce) {
      CORBEL_RETURN_IF_ERROR(file.write(bytes.subspan(done, std::min(kAtOnce, bytes.size() - done))));
      asked += std::min(kAtOnce, bytes.size() - done);
      if (asked < (48 << 20)) continue;
      asked = 0;
      if (proceed && !proceed()) return packed_file::cancelled();
    }
    at = entry.offset + entry.bytes;
  }
  return file.commit();
}

CORBEL_INLINE Status PackedCache::store(const std::function<std::span<const std::byte>(std::size_t weight)>& bytes_of,
                                        const Proceed& proceed) {
  const bool nothing = std::all_of(bytes_.begin(), bytes_.end(), [](std::uint64_t bytes) { return bytes == 0; });
  if (path_.empty() || !found_.empty() || nothing) return {};
  const Status status = write(bytes_of, proceed);
  if (status.code() == Errc::kCancelled) return status;
  const std::string path = corbel::detail::printable(path_, 300);
  if (status.ok()) {
    context_->log(LogLevel::kInfo, fmt::format("packed cache: wrote {}", path));
  } else {
    context_->log(LogLevel::kWarning, fmt::format("packed cache: {} is not written: {}", path, status.message()));
  }
  return {};
}

}  // namespace models
CORBEL_NAMESPACE_END
