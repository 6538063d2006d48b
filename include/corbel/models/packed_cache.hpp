// PackedCache: prepared weights in a file between runs, so that a load maps or reads them instead of packing the
// checkpoint again. docs/reference/packed-cache.md has the layout of the file and what each check finds.
//
// Nothing that goes wrong with the file is an error of the load: it is one line in the context's log, and the weights
// are prepared as without a cache.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/config.hpp>
#include <corbel/context.hpp>
#include <corbel/detail/digest.hpp>
#include <corbel/error.hpp>
#include <corbel/hal/program.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {

/// How the weights of a packed file come into memory.
enum class PackedUse : std::uint8_t {
  /// Mapped, read-only: processes share them, and they are not charged to the budget. Who truncates the file meanwhile
  /// ends the process, as with OpenOptions::map; Corbel itself only ever replaces such files.
  kMap,
  /// Read into memory of the context.
  kRead,
};

/// What makes prepared weights the same beside the checkpoint.
struct PackedIdentity {
  std::string backend;               ///< B::kName
  corbel::detail::Digest layout;     ///< of the backend: how prepared bytes are laid out
  std::uint64_t options = 0;         ///< of the load, as far as they change weights
  std::vector<std::uint64_t> bytes;  ///< of each weight of the program when prepared; 0: not kept in the file
};

/// The file of one load. Not thread-safe; uses the context's threads.
class CORBEL_API PackedCache {
 public:
  /// True: go on. Asked on the loading thread at least every 64 MiB of work.
  using Proceed = std::function<bool()>;

  /// Keeps nothing.
  PackedCache() = default;
  /// Looks for the file in `folder`, which is made where it is missing, and checks all of it. The checkpoint is read
  /// whole where its files are not known by their stamps to be those that the packed file was made from.
  /// Errc::kCancelled is the only error.
  static Result<PackedCache> open(const std::string& folder, PackedUse use, const Checkpoint& checkpoint,
                                  const hal::Program& program, PackedIdentity identity, const Context& context,
                                  const Proceed& proceed);

  /// The prepared bytes of a weight, at a multiple of 64; empty where the file does not have them. They live as long as
  /// keep().
  std::span<const std::byte> find(std::size_t weight) const noexcept {
    return weight < found_.size() ? found_[weight] : std::span<const std::byte>();
  }
  const std::shared_ptr<const void>& keep() const noexcept { return keep_; }

  /// Writes the file where there was none to use. `bytes_of(weight)` are the prepared bytes of each weight that is
  /// kept. Errc::kCancelled is the only error.
  Status store(const std::function<std::span<const std::byte>(std::size_t weight)>& bytes_of, const Proceed& proceed);

 private:
  struct Header;
  struct Entry;
  static std::uint64_t data_begin(std::size_t num_entries) noexcept;
  Status make_key(const hal::Program& program, const PackedIdentity& identity);
  Result<bool> load(PackedUse use, const Proceed& proceed);
  Status read_table(const FileReader& file, Header& header, std::vector<Entry>& table) const;
  Status bring(PackedUse use, const FileReader& file, const Header& header, const std::vector<Entry>& table,
               const Proceed& proceed);
  /// Digests all files of the checkpoint, once.
  Status digest_content(const Proceed& proceed);
  std::vector<FileStamp> stamps() const;
  bool seen(const corbel::detail::Digest& content) const;
  void write_seen() const;
  Status write(const std::function<std::span<const std::byte>(std::size_t weight)>& bytes_of, const Proceed& proceed);

  const Checkpoint* checkpoint_ = nullptr;
  const Context* context_ = nullptr;
  std::string folder_;
  std::string path_;  // of the file; empty: no cache
  corbel::detail::Digest key_;
  std::vector<corbel::detail::Digest> names_;  // of what each weight is
  std::vector<std::uint64_t> bytes_;
  std::vector<FileStamp> first_stamps_;  // before anything was read
  bool have_content_ = false;
  corbel::detail::Digest content_;
  std::vector<std::span<const std::byte>> found_;
  std::shared_ptr<const void> keep_;
};

}  // namespace models
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/models/packed_cache.ipp>
#endif
