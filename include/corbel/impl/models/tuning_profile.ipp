// Definitions of models/tuning_profile.hpp.
#pragma once

#include <corbel/checkpoint/file.hpp>
#include <corbel/detail/digest.hpp>
#include <corbel/models/tuning_profile.hpp>

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace tuning_file {

/// All that the file has, in the machine's order of bytes.
struct Content {
  char magic[8] = {'C', 'O', 'R', 'B', 'E', 'L', 'T', '1'};
  std::uint64_t word = 0;
  corbel::detail::Digest check;  // of the identity, mixed with the word
};

inline corbel::detail::Digest check_of(const corbel::detail::Digest& identity, std::uint64_t word) noexcept {
  const std::uint64_t words[3] = {identity.low, identity.high, word};
  return corbel::detail::digest(std::as_bytes(std::span(words)));
}
inline corbel::detail::Digest digest_of(std::string_view identity) noexcept {
  return corbel::detail::digest(std::as_bytes(std::span(identity.data(), identity.size())));
}
inline std::string path_of(const std::string& folder, const corbel::detail::Digest& identity) {
  return corbel::detail::path_in(folder, to_hex(identity) + ".tuned");
}

}  // namespace tuning_file

CORBEL_INLINE std::uint64_t read_tuning_profile(const std::string& folder, std::string_view identity) {
  const corbel::detail::Digest digest = tuning_file::digest_of(identity);
  const Result<std::shared_ptr<const FileReader>> file =
      corbel::detail::open_file(tuning_file::path_of(folder, digest));
  tuning_file::Content content;
  const tuning_file::Content expected;
  if (!file.ok() || (*file)->size() != sizeof content ||
      !corbel::detail::read_exactly(**file, 0, std::as_writable_bytes(std::span(&content, 1))).ok())
    return 0;
  const bool whole = std::memcmp(content.magic, expected.magic, sizeof content.magic) == 0 &&
                     content.check == tuning_file::check_of(digest, content.word);
  return whole ? content.word : 0;
}

CORBEL_INLINE Status write_tuning_profile(const std::string& folder, std::string_view identity, std::uint64_t word) {
  const corbel::detail::Digest digest = tuning_file::digest_of(identity);
  tuning_file::Content content;
  content.word = word;
  content.check = tuning_file::check_of(digest, word);
  CORBEL_RETURN_IF_ERROR(corbel::detail::make_folder(folder));
  CORBEL_ASSIGN_OR_RETURN(corbel::detail::OutputFile file,
                          corbel::detail::OutputFile::create(tuning_file::path_of(folder, digest),
                                                             corbel::detail::OutputFile::Links::kReplace));
  CORBEL_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(&content, 1))));
  return file.commit();
}

}  // namespace models
CORBEL_NAMESPACE_END
