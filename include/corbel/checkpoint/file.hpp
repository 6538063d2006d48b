// Files: FileReader, the interface behind which hosts can put their own storage, and the files of the operating system.
//
//   class InArchive : public corbel::FileReader { ... };
//   auto checkpoint = corbel::Checkpoint::from_reader(std::make_shared<InArchive>(...), context);
#pragma once

#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN

/// What tells one state of a file of the operating system from another without reading it: the system changes
/// `changed_ns` with every write, and no program can set it back. All zeros: not known.
struct FileStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;  ///< since 1970
  std::int64_t changed_ns = 0;
  bool known() const noexcept { return inode != 0; }
  bool operator==(const FileStamp&) const = default;
};

/// Random access to the bytes of a file, for hosts that keep models in archives or behind their own storage.
class CORBEL_API FileReader {
 public:
  virtual ~FileReader() = default;
  /// Size in bytes. Must not change.
  virtual std::uint64_t size() const noexcept = 0;
  /// Reads up to out.size() bytes at `offset` and answers how many were read (at least 1, may be fewer than asked).
  /// Called from any thread, never with an empty `out` or beyond size().
  virtual Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) const = 0;
  /// The state of the file now. Readers of the host's own need none: see LoadOptions::packed_cache.
  virtual FileStamp stamp() const noexcept { return {}; }
};

/// The files of a folder, for hosts that keep models in archives or behind their own storage, and for tests.
class CORBEL_API FolderReader {
 public:
  virtual ~FolderReader() = default;
  /// Names of the files in it, in any order; files in a folder below as "folder/name" (only
  /// "additional_chat_templates" is looked at). Called once, when a checkpoint is opened.
  virtual Result<std::vector<std::string>> list() const = 0;
  /// Opens one file of the list. Called from any thread.
  virtual Result<std::shared_ptr<const FileReader>> open(const std::string& name) const = 0;
};

/// Takes the next bytes of a tensor that is being written.
using WriteSink = std::function<Status(std::span<const std::byte> bytes)>;
/// Gives all bytes of a tensor to `sink`, in as many pieces as it likes, and hands on the sink's errors. Called on the
/// writing thread, once for each time that a writer writes.
using WriteSource = std::function<Status(const WriteSink& sink)>;

namespace detail {

/// Gives a source's bytes to `sink`; kInvalidArgument unless there are exactly `expected` of them.
Status pour(const WriteSource& source, std::uint64_t expected, const WriteSink& sink);

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

/// True where the path is a folder; never fails.
bool is_folder(const std::string& path) noexcept;

/// Makes a folder where there is none; those above it must be there. kIoOpen.
Status make_folder(const std::string& path);

/// A folder of the operating system. A link in it may lead to a file in the same folder or to the "blobs" of the same
/// model in a Hugging Face cache; others are kPathEscape, unless `follow_links`. Messages do not name the folder.
class DiskFolder final : public FolderReader {
 public:
  DiskFolder(std::string path, bool follow_links) : path_(std::move(path)), follow_links_(follow_links) {}
  Result<std::vector<std::string>> list() const override;
  Result<std::shared_ptr<const FileReader>> open(const std::string& name) const override;
  Result<MappedFile> map(const std::string& name) const;

 private:
  Result<std::string> resolve(const std::string& name) const;
  std::string path_;
  bool follow_links_;
};

/// Reads exactly out.size() bytes. kIoRead from the reader; kTruncated where it answers with no bytes.
Status read_exactly(const FileReader& reader, std::uint64_t offset, std::span<std::byte> out);

/// A file that appears under its name only when it is complete: bytes go to "<path>.part" (".part1" and so on where
/// there is such a file), which commit() renames and the destructor removes. A symbolic link is followed: the file that
/// it leads to is replaced, or made; kReplace: the link itself is replaced. kIoOpen (also where a folder, a pipe or a
/// device has the name), kIoWrite, kNoSpace. The process's limit of file sizes is an error like a full disk.
class OutputFile {
 public:
  enum class Links : std::uint8_t { kFollow, kReplace };
  static Result<OutputFile> create(const std::string& name, Links links = Links::kFollow);
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

/// The path of a file in a folder, which may end with a slash.
inline std::string path_in(const std::string& folder, const std::string& name) {
  return (folder.ends_with('/') ? folder : folder + "/") + name;
}

/// True where both paths lead to the same file or folder.
bool same_file(const std::string& a, const std::string& b) noexcept;

/// A folder that appears under its name only when it is complete: files go to "<path>.part", which commit() renames and
/// the destructor removes. kInvalidArgument where there is a folder with files, a file, or a symbolic link of that
/// name; kIoOpen, kIoWrite, kNoSpace.
class OutputFolder {
 public:
  static Result<OutputFolder> create(const std::string& path);
  OutputFolder(OutputFolder&& other) noexcept;
  OutputFolder& operator=(OutputFolder&&) = delete;
  ~OutputFolder();
  /// Writes a file of this name, which may be one in a folder below ("folder/name").
  Status add(const std::string& name, std::span<const std::byte> bytes);
  /// Where to write a file that add() does not write.
  std::string path_of(const std::string& name);
  Status commit();

 private:
  explicit OutputFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;                // empty: nothing to remove
  std::vector<std::string> names_;  // of files and, with '/' at the end, of folders, in the order of their making
};

}  // namespace detail
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/checkpoint/file.ipp>
#endif
