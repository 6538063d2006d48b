// Definitions of file.hpp for POSIX systems.
#pragma once

#include <corbel/checkpoint/file.hpp>
#include <corbel/detail/utf8.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <limits>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace detail {

// The common errors in words: strerror depends on the locale.
inline std::string errno_text(int error) {
  switch (error) {
    case EFBIG:
      return "larger than files may be here";
    case EEXIST:
      return "is there already and no folder";
    case ENOENT:
      return "no such file";
    case ENOTDIR:
      return "a part of the path is not a folder";
    case EACCES:
    case EPERM:
      return "not permitted";
    case ELOOP:
      return "too many symbolic links";
    case EISDIR:
      return "is a folder";
    case EMFILE:
    case ENFILE:
      return "too many open files";
    case ENAMETOOLONG:
      return "the name is too long";
    case ENOSPC:
      return "the disk is full";
    case EDQUOT:
      return "the quota is used up";
    case EROFS:
      return "the file system is read-only";
    case EIO:
      return "input/output error";
    default:
      return "error number " + std::to_string(error);
  }
}

inline Status open_error(const char* what, int error) {
  return {Errc::kIoOpen, std::string(what) + ": " + errno_text(error)};
}

inline Status write_error(const char* what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return {full ? Errc::kNoSpace : Errc::kIoWrite, std::string(what) + ": " + errno_text(error)};
}

// An open descriptor, closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int number) noexcept : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const noexcept { return number_; }

 private:
  int number_;
};

struct OpenedFile {
  Descriptor descriptor;
  std::uint64_t size;
};

// pread that goes on after signals; the number of bytes or -1.
inline ssize_t read_at(int descriptor, std::uint64_t offset, std::span<std::byte> out) noexcept {
  const std::size_t count = std::min(out.size(), std::size_t{1} << 30);
  for (;;) {
    const ssize_t got = ::pread(descriptor, out.data(), count, static_cast<off_t>(offset));
    if (got >= 0 || errno != EINTR) return got;
  }
}

CORBEL_INLINE Result<OpenedFile> open_regular(const std::string& path) {
  if (path.find('\0') != std::string::npos) return Status(Errc::kIoOpen, "cannot open: the path has a NUL character");
  // Opening a device can have effects of its own, so look first; fstat then decides about what was really opened.
  struct ::stat info = {};
  if (::stat(path.c_str(), &info) != 0) return open_error("cannot open", errno);
  const char* const kNotRegular = "cannot open: not a regular file";
  if (!S_ISREG(info.st_mode)) {
    return Status(Errc::kIoOpen, S_ISDIR(info.st_mode) ? "cannot open: is a folder, expected a file" : kNotRegular);
  }
  int number = -1;
  do {
    number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  } while (number < 0 && errno == EINTR);
  if (number < 0) return open_error("cannot open", errno);
  Descriptor descriptor(number);
  if (::fstat(number, &info) != 0) return open_error("cannot open", errno);
  if (!S_ISREG(info.st_mode)) return Status(Errc::kIoOpen, kNotRegular);
  std::byte probe{};
  if (info.st_size == 0 && read_at(number, 0, {&probe, 1}) != 0) {
    return Status(Errc::kIoOpen, "cannot open: a special file without a size");
  }
  return OpenedFile{std::move(descriptor), static_cast<std::uint64_t>(info.st_size)};
}

class PosixFile final : public FileReader {
 public:
  explicit PosixFile(OpenedFile file) noexcept : file_(std::move(file)) {}
  std::uint64_t size() const noexcept override { return file_.size; }
  Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) const override {
    const ssize_t got = read_at(file_.descriptor.get(), offset, out);
    if (got < 0) return Status(Errc::kIoRead, "reading failed: " + errno_text(errno));
    return static_cast<std::size_t>(got);
  }
  FileStamp stamp() const noexcept override {
    struct ::stat info = {};
    if (::fstat(file_.descriptor.get(), &info) != 0) return {};
    const auto nanoseconds = [](const timespec& time) {
      return std::int64_t{time.tv_sec} * 1000000000 + std::int64_t{time.tv_nsec};
    };
    return {static_cast<std::uint64_t>(info.st_dev), static_cast<std::uint64_t>(info.st_ino),
            static_cast<std::uint64_t>(info.st_size), nanoseconds(info.st_mtim), nanoseconds(info.st_ctim)};
  }

 private:
  OpenedFile file_;
};

CORBEL_INLINE Result<std::shared_ptr<const FileReader>> open_file(const std::string& path) {
  CORBEL_ASSIGN_OR_RETURN(OpenedFile file, open_regular(path));
  return std::shared_ptr<const FileReader>(std::make_shared<PosixFile>(std::move(file)));
}

CORBEL_INLINE Result<MappedFile> map_file(const std::string& path) {
  CORBEL_ASSIGN_OR_RETURN(const OpenedFile file, open_regular(path));
  if (file.size == 0) return MappedFile{};
  if (file.size > std::numeric_limits<std::size_t>::max()) {
    return Status(Errc::kOutOfMemory,
                  "cannot map: " + std::to_string(file.size) + " bytes do not fit the address space");
  }
  const auto size = static_cast<std::size_t>(file.size);
  void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor.get(), 0);
  if (memory == MAP_FAILED) {
    return Status(errno == ENOMEM ? Errc::kOutOfMemory : Errc::kIoOpen, "cannot map: " + errno_text(errno));
  }
  std::shared_ptr<const void> keep(memory, [size](const void* mapped) { ::munmap(const_cast<void*>(mapped), size); });
  return MappedFile{std::move(keep), {static_cast<const std::byte*>(memory), size}};
}

CORBEL_INLINE bool is_folder(const std::string& path) noexcept {
  struct ::stat info = {};
  return path.find('\0') == std::string::npos && ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

CORBEL_INLINE Status make_folder(const std::string& path) {
  if (is_folder(path)) return {};
  if (path.empty() || path.find('\0') != std::string::npos)
    return {Errc::kIoOpen, "cannot make the folder: the path is empty or has a NUL character"};
  if (::mkdir(path.c_str(), 0777) == 0 || is_folder(path)) return {};
  return open_error("cannot make the folder", errno);
}

// Absolute and without links; empty where that fails (errno says why).
inline std::string real_path(const std::string& path) {
  char* const found = ::realpath(path.c_str(), nullptr);
  if (found == nullptr) return {};
  std::string result(found);
  std::free(found);
  return result;
}

// Adds "prefix + name" of everything in a folder that is not a folder itself.
inline Status list_folder(const std::string& path, const std::string& prefix, std::vector<std::string>& names) {
  static constexpr std::size_t kMaxNames = 65536;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), &::closedir);
  if (folder == nullptr) return open_error("cannot list the folder", errno);
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == ".." || is_folder(path + "/" + name)) continue;
    if (names.size() >= kMaxNames) {
      return {Errc::kLimitExceeded, "more than " + std::to_string(kMaxNames) + " files in the folder"};
    }
    names.push_back(prefix + name);
  }
  return {};
}

CORBEL_INLINE Result<std::vector<std::string>> DiskFolder::list() const {
  static const char* const kTemplates = "additional_chat_templates";
  std::vector<std::string> names;
  CORBEL_RETURN_IF_ERROR(list_folder(path_, "", names));
  const std::string below = path_ + "/" + kTemplates;
  if (is_folder(below)) CORBEL_RETURN_IF_ERROR(list_folder(below, std::string(kTemplates) + "/", names));
  return names;
}

// The path to open. A downloaded folder must not make the host read a file from somewhere else.
CORBEL_INLINE Result<std::string> DiskFolder::resolve(const std::string& name) const {
  std::string path = path_ + "/" + name;
  if (name.find('\0') != std::string::npos) return Status(Errc::kIoOpen, "cannot open: the name has a NUL character");
  if (follow_links_) return path;
  const std::string target = real_path(path);
  if (target.empty()) return open_error("cannot open", errno);
  std::string root = real_path(path_);
  if (root.empty()) return open_error("cannot open", errno);
  if (root.back() != '/') root += '/';
  if (target.starts_with(root)) return target;
  // ".../models--owner--name/snapshots/revision/" links into ".../models--owner--name/blobs/".
  const std::size_t revision = root.rfind('/', root.size() - 2);
  const std::size_t snapshots =
      revision == std::string::npos || revision == 0 ? std::string::npos : root.rfind('/', revision - 1);
  if (snapshots != std::string::npos && root.substr(snapshots, revision - snapshots) == "/snapshots" &&
      target.starts_with(root.substr(0, snapshots) + "/blobs/")) {
    return target;
  }
  return Status(Errc::kPathEscape, "cannot open: the file is a link that leaves the folder");
}

CORBEL_INLINE Result<std::shared_ptr<const FileReader>> DiskFolder::open(const std::string& name) const {
  CORBEL_ASSIGN_OR_RETURN(const std::string path, resolve(name));
  return open_file(path);
}

CORBEL_INLINE Result<MappedFile> DiskFolder::map(const std::string& name) const {
  CORBEL_ASSIGN_OR_RETURN(const std::string path, resolve(name));
  return map_file(path);
}

CORBEL_INLINE Status read_exactly(const FileReader& reader, std::uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const Result<std::size_t> got = reader.read(offset, out);
    if (!got.ok()) return got.status().with_place("byte " + std::to_string(offset));
    if (*got == 0) {
      return {Errc::kTruncated, "the file ended at byte " + std::to_string(offset) + ", expected " +
                                    std::to_string(out.size()) + " more bytes"};
    }
    if (*got > out.size()) return {Errc::kIoRead, "the reader answered with more bytes than it was asked for"};
    offset += *got;
    out = out.subspan(*got);
  }
  return {};
}

CORBEL_INLINE Status pour(const WriteSource& source, std::uint64_t expected, const WriteSink& sink) {
  std::uint64_t given = 0;
  CORBEL_RETURN_IF_ERROR(source([&](std::span<const std::byte> bytes) -> Status {
    given += bytes.size();
    return given <= expected ? sink(bytes) : Status();
  }));
  if (given == expected) return {};
  return {Errc::kInvalidArgument,
          "its source gave " + std::to_string(given) + " bytes, its shape and type need " + std::to_string(expected)};
}

// What a new file of this name replaces, or where it goes: links are followed, also to a file that is not there yet.
// What is no file (a pipe, a device) stays, and is an error.
inline Result<std::string> resolve_output(std::string path) {
  constexpr int kMaxLinks = 40;
  for (int links = 0;; ++links) {
    struct ::stat info = {};
    if (::lstat(path.c_str(), &info) != 0) return path;  // opening it says why
    if (S_ISREG(info.st_mode)) return path;
    if (!S_ISLNK(info.st_mode)) {
      const char* const what = S_ISDIR(info.st_mode)                            ? "a folder"
                               : S_ISFIFO(info.st_mode)                         ? "a pipe"
                               : S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode) ? "a device"
                                                                                : "no regular file";
      const std::string place = links == 0 ? std::string("is ") : "leads to " + printable(path, 200) + ", ";
      return Status(Errc::kIoOpen, "cannot write: " + place + what);
    }
    if (links == kMaxLinks) return open_error("cannot write", ELOOP);
    std::string target(4096, '\0');
    const ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
    if (size < 0) return open_error("cannot write", errno);
    target.resize(static_cast<std::size_t>(size));
    path = target.starts_with('/') ? target : path.substr(0, path.rfind('/') + 1) + target;
  }
}

CORBEL_INLINE Result<OutputFile> OutputFile::create(const std::string& name, Links links) {
  if (name.find('\0') != std::string::npos) return Status(Errc::kIoOpen, "cannot write: the path has a NUL character");
  std::string path = name;
  struct ::stat info = {};
  if (links == Links::kFollow || ::lstat(name.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) {
    CORBEL_ASSIGN_OR_RETURN(path, resolve_output(name));
  }
  // A file of that name is somebody else's, and so is what a link of that name leads to.
  for (int attempt = 0;; ++attempt) {
    std::string part = path + ".part" + (attempt == 0 ? "" : std::to_string(attempt));
    const int number = ::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    if (number >= 0) return OutputFile(path, std::move(part), number);
    if (errno != EEXIST || attempt == 99) return open_error("cannot write", errno);
  }
}

CORBEL_INLINE OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), part_(std::move(other.part_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

CORBEL_INLINE OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(part_.c_str());
}

/// In its life a write of this thread beyond the process's limit of file sizes is EFBIG alone, without SIGXFSZ, which
/// ends programs.
class NoFileSizeSignal {
 public:
  NoFileSizeSignal() noexcept {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    was_pending_ = pending();
    blocked_ = pthread_sigmask(SIG_BLOCK, &signal_, &before_) == 0;
  }
  ~NoFileSizeSignal() {
    const int error = errno;
    int number = 0;
    if (blocked_ && !was_pending_ && pending()) sigwait(&signal_, &number);
    if (blocked_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  NoFileSizeSignal(const NoFileSizeSignal&) = delete;
  NoFileSizeSignal& operator=(const NoFileSizeSignal&) = delete;

 private:
  static bool pending() noexcept {
    sigset_t all;
    return sigpending(&all) == 0 && sigismember(&all, SIGXFSZ) == 1;
  }
  sigset_t signal_, before_;
  bool was_pending_ = false;
  bool blocked_ = false;
};

CORBEL_INLINE Status OutputFile::write(std::span<const std::byte> bytes) {
  const NoFileSizeSignal no_signal;
  while (!bytes.empty()) {
    const ssize_t done = ::write(descriptor_, bytes.data(), std::min(bytes.size(), std::size_t{1} << 30));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return write_error("writing failed", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return {};
}

CORBEL_INLINE Status OutputFile::commit() {
  if (::fsync(descriptor_) != 0) return write_error("writing failed", errno);
  if (::rename(part_.c_str(), path_.c_str()) != 0) return write_error("renaming failed", errno);
  ::close(std::exchange(descriptor_, -1));
  return {};
}

CORBEL_INLINE bool same_file(const std::string& a, const std::string& b) noexcept {
  struct ::stat first = {};
  struct ::stat second = {};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

CORBEL_INLINE Result<OutputFolder> OutputFolder::create(const std::string& path) {
  std::string plain = path;
  while (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  if (plain.empty() || plain.find('\0') != std::string::npos) {
    return Status(Errc::kIoOpen, "cannot write: the path is empty or has a NUL character");
  }
  struct ::stat info = {};
  if (::lstat(plain.c_str(), &info) == 0) {
    std::vector<std::string> names;
    if (S_ISLNK(info.st_mode)) {
      return Status(Errc::kInvalidArgument,
                    printable(plain, 200) + ": is a symbolic link; name the folder that it leads to");
    }
    if (!S_ISDIR(info.st_mode))
      return Status(Errc::kInvalidArgument, printable(plain, 200) + ": is there already and no folder");
    CORBEL_RETURN_IF_ERROR(list_folder(plain, "", names));
    if (!names.empty())
      return Status(Errc::kInvalidArgument, printable(plain, 200) + ": is there already and not empty");
  }
  OutputFolder folder(plain);
  if (::mkdir((plain + ".part").c_str(), 0777) != 0) {
    const int reason = errno;
    folder.path_.clear();
    if (reason == EEXIST) {
      return Status(Errc::kIoOpen, printable(plain, 200) +
                                       ".part: is there already; remove it where it was left by a run that was cut");
    }
    return open_error("cannot write", reason).with_place(printable(plain, 200));
  }
  return folder;
}

CORBEL_INLINE OutputFolder::OutputFolder(OutputFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), names_(std::move(other.names_)) {}

CORBEL_INLINE OutputFolder::~OutputFolder() {
  if (path_.empty()) return;
  const std::string part = path_ + ".part";
  for (auto name = names_.rbegin(); name != names_.rend(); ++name) {
    const std::string file = part + "/" + *name;
    if (name->back() == '/') {
      ::rmdir(file.c_str());
    } else {
      ::unlink(file.c_str());
    }
  }
  ::rmdir(part.c_str());
}

CORBEL_INLINE std::string OutputFolder::path_of(const std::string& name) {
  names_.push_back(name);
  return path_ + ".part/" + name;
}

CORBEL_INLINE Status OutputFolder::add(const std::string& name, std::span<const std::byte> bytes) {
  if (const std::size_t slash = name.find('/'); slash != std::string::npos) {
    const std::string below = name.substr(0, slash + 1);
    if (std::find(names_.begin(), names_.end(), below) == names_.end() && ::mkdir(path_of(below).c_str(), 0777) != 0) {
      return open_error("cannot write", errno).with_place(printable(name, 100));
    }
  }
  CORBEL_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path_of(name)));
  CORBEL_RETURN_IF_ERROR(file.write(bytes));
  return file.commit();
}

CORBEL_INLINE Status OutputFolder::commit() {
  if (::rename((path_ + ".part").c_str(), path_.c_str()) != 0) return write_error("renaming failed", errno);
  path_.clear();
  return {};
}

}  // namespace detail
CORBEL_NAMESPACE_END
