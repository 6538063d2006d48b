// Errors: Errc, Status, Result<T>, Exception. Expected failures are values; nothing in the library ends the process.
//
//   corbel::Result<corbel::Model<>> model = corbel::Model<>::load("model.gguf", context);
//   if (!model.ok()) { show(model.status().message()); return; }     // no exceptions needed
//   use(model.value());                                              // or: .value() throws corbel::Exception
#pragma once

#include <corbel/config.hpp>

#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#if CORBEL_HAS_EXCEPTIONS
#include <exception>
#endif

CORBEL_NAMESPACE_BEGIN

/// The kind of a failure. Values are stable: names and numbers never change, new ones are added at the end.
enum class Errc : std::uint8_t {
  kOk = 0,
  kIoOpen,              ///< a file could not be opened, or is not a regular file
  kIoRead,              ///< reading failed
  kIoWrite,             ///< writing failed
  kNoSpace,             ///< the disk or quota is full
  kTruncated,           ///< the input ends before what it announces
  kBadMagic,            ///< not a file of this format
  kUnsupportedVersion,  ///< a version of the format that is not read
  kUnsupported,         ///< understood, and not supported by this version
  kLimitExceeded,       ///< above a documented limit
  kOverflow,            ///< a size does not fit in 64 bits
  kBadType,             ///< a type number that does not exist
  kTypeMismatch,        ///< a value of another type than needed
  kMissingKey,          ///< a needed metadata key is absent
  kMissingTensor,       ///< a needed tensor is absent
  kDuplicate,           ///< a key or name appears twice
  kBadValue,            ///< a value outside its domain
  kBadAlignment,        ///< an alignment that is not a power of two within limits
  kBadOffset,           ///< an offset that is unaligned or outside the data
  kOverlap,             ///< two tensors share bytes
  kGap,                 ///< bytes between tensors that belong to none
  kTrailingData,        ///< bytes after the end
  kShapeMismatch,       ///< a shape or count differs from what others say
  kSizeMismatch,        ///< a byte size differs from shape and type
  kBadUtf8,             ///< text that is not valid UTF-8
  kBadJson,             ///< text that is not valid JSON
  kDepthExceeded,       ///< nested deeper than the limit
  kVocabInvalid,        ///< a vocabulary that contradicts itself
  kTemplateError,       ///< a chat template failed to compile or to render
  kTemplateBudget,      ///< a chat template used more steps or output than allowed
  kGrammarError,        ///< a grammar failed to compile
  kGrammarBudget,       ///< a grammar needs more states than allowed
  kPathEscape,          ///< a file name from a file leaves its folder
  kStateIncompatible,   ///< a saved state belongs to something else
  kChecksum,            ///< a checksum differs
  kOutOfMemory,         ///< memory, a budget, or the pool of cache blocks is used up
  kInvalidArgument,     ///< a parameter or request outside its documented domain
  kBusy,                ///< the object is in use by another call
  kCancelled,           ///< cancelled by the caller
  kModelLost,           ///< the file behind a mapped model was changed
  kContextOverflow,     ///< more tokens than the model or the cache has positions for
  kInternal,            ///< a fault of the library: please report it
};

/// The stable snake_case name, for example "io_open". Static storage. Thread-safe.
CORBEL_API const char* errc_name(Errc code) noexcept;

/// The outcome of a call without a value. Cheap when ok (no allocation). Messages are valid UTF-8 of at most 512 bytes
/// without control characters and name the place: file, byte offset, tensor, JSON path or parameter, with expected and
/// actual value.
class [[nodiscard]] CORBEL_API Status {
 public:
  Status() noexcept = default;
  /// An error; the message is cleaned (control bytes escaped, bad UTF-8 replaced) and cut to 512 bytes. If there is no
  /// memory for the message, the code stays and message() is the code's name.
  Status(Errc code, std::string_view message) noexcept;

  bool ok() const noexcept { return code_ == Errc::kOk; }
  Errc code() const noexcept { return code_; }
  /// The message; empty when ok. Lives as long as this Status (copies share it).
  std::string_view message() const noexcept;
  /// The same error with `place` and ": " before its message; as it is where the message begins with this place
  /// already, or with a file in it ("place/file"). No-op when ok.
  Status with_place(std::string_view place) const noexcept;

 private:
  Errc code_ = Errc::kOk;
  std::shared_ptr<const std::string> message_;
};

#if CORBEL_HAS_EXCEPTIONS
/// Thrown by Result<T>::value() only.
class CORBEL_API Exception : public std::exception {
 public:
  explicit Exception(Status status) noexcept : status_(std::move(status)) {}
  const Status& status() const noexcept { return status_; }
  Errc code() const noexcept { return status_.code(); }
  /// Zero-terminated copy of the message.
  const char* what() const noexcept override;

 private:
  Status status_;
};
#endif

/// A value or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) noexcept(std::is_nothrow_move_constructible_v<T>) : value_(std::move(value)) {}  // NOLINT implicit
  /// `status` must be an error; an ok one becomes Errc::kInternal.
  Result(Status status) noexcept  // NOLINT implicit
      : status_(status.ok() ? Status(Errc::kInternal, "ok status used as an error") : std::move(status)) {}

  bool ok() const noexcept { return value_.has_value(); }
  const Status& status() const noexcept { return status_; }

  /// The value; call only after ok() was checked.
  T& operator*() & noexcept { return *value_; }
  const T& operator*() const& noexcept { return *value_; }
  T&& operator*() && noexcept { return std::move(*value_); }
  T* operator->() noexcept { return &*value_; }
  const T* operator->() const noexcept { return &*value_; }

#if CORBEL_HAS_EXCEPTIONS
  /// The value, or throws Exception.
  T& value() & {
    if (!ok()) throw Exception(status_);
    return *value_;
  }
  T value() && {
    if (!ok()) throw Exception(status_);
    return std::move(*value_);
  }
#endif

 private:
  std::optional<T> value_;
  Status status_;
};

CORBEL_NAMESPACE_END

// Returns early with the error of a Status expression.
#define CORBEL_RETURN_IF_ERROR(expr)                                                           \
  do {                                                                                         \
    if (::corbel::Status corbel_status_ = (expr); !corbel_status_.ok()) return corbel_status_; \
  } while (false)
#define CORBEL_DETAIL_CAT2(a, b) a##b
#define CORBEL_DETAIL_CAT(a, b) CORBEL_DETAIL_CAT2(a, b)
// CORBEL_ASSIGN_OR_RETURN(auto x, f()): declares x from a Result, or returns its error.
#define CORBEL_ASSIGN_OR_RETURN(decl, expr) \
  CORBEL_DETAIL_ASSIGN(CORBEL_DETAIL_CAT(corbel_result_, __LINE__), decl, expr)
#define CORBEL_DETAIL_ASSIGN(tmp, decl, expr) \
  auto tmp = (expr);                          \
  if (!tmp.ok()) return tmp.status();         \
  decl = *std::move(tmp)

#if CORBEL_HEADER_ONLY
#include <corbel/impl/error.ipp>
#endif
