// Files: FileReader, the interface behind which hosts can put their own storage, and the files of the operating system.
//
//   class InArchive : public corbel::FileReader { ... };
//   auto checkpoint = corbel::Checkpoint::from_reader(std::make_shared<InArchive>(...), context);
#pragma once

#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

CORBEL_NAMESPACE_BEGIN

/// Random access to the bytes of a file, for hosts that keep models in archives or behind their own storage.
class CORBEL_API FileReader {
 public:
  virtual ~FileReader() = default;
  /// Size in bytes. Must not change.
  virtual std::uint64_t size() const noexcept = 0;
  /// Reads up to out.size() bytes at `offset` and answers how many were read (at least 1, may be fewer than asked).
  /// Called from any thread, never with an empty `out` or beyond size().
  virtual Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) const = 0;
};

namespace detail {

/// Opens a regular file for reading. kIoOpen where it is missing, not permitted, or something else than a regular file
/// (a folder, a pipe, a device, a file of /proc); never blocks. Messages do not name the path.
Result<std::shared_ptr<const FileReader>> open_file(const std::string& path);

/// A whole file mapped into memory, read-only. `bytes` live as long as `keep`.
struct MappedFile {
  std::shared_ptr<const void> keep;
  std::span<const std::byte> bytes;
};
/// Maps a regular file; errors as open_file, and kOutOfMemory where there is no address space.
Result<MappedFile> map_file(const std::string& path);

/// Reads exactly out.size() bytes. kIoRead from the reader; kTruncated where it answers with no bytes.
Status read_exactly(const FileReader& reader, std::uint64_t offset, std::span<std::byte> out);

/// A file that appears under its name only when it is complete: bytes go to "<path>.part", which commit() renames and
/// the destructor removes. kIoOpen, kIoWrite, kNoSpace.
class OutputFile {
 public:
  static Result<OutputFile> create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();
  Status write(std::span<const std::byte> bytes);
  /// Writes everything to the disk and gives the file its name.
  Status commit();

 private:
  OutputFile(std::string path, std::string part, int descriptor) noexcept
      : path_(std::move(path)), part_(std::move(part)), descriptor_(descriptor) {}
  std::string path_;
  std::string part_;
  int descriptor_;
};

}  // namespace detail
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/checkpoint/file.ipp>
#endif
