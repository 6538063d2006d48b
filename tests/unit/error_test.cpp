// Errc, Status, Result, Exception, and the names and facts of a build.
#include <corbel/build_info.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/error.hpp>

#include <catch2/catch.hpp>
#include <new>
#include <set>
#include <stdexcept>
#include <string>

using corbel::Errc;
using corbel::Result;
using corbel::Status;

TEST_CASE("every error kind has a stable, unique snake_case name") {
  std::set<std::string> names;
  for (int i = 0; i <= static_cast<int>(Errc::kInternal); ++i) {
    const std::string name = corbel::errc_name(static_cast<Errc>(i));
    CHECK(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789") == std::string::npos);
    names.insert(name);
  }
  CHECK(names.size() == static_cast<std::size_t>(Errc::kInternal) + 1);
  CHECK(std::string(corbel::errc_name(Errc::kOk)) == "ok");
  CHECK(std::string(corbel::errc_name(Errc::kIoOpen)) == "io_open");
  CHECK(std::string(corbel::errc_name(Errc::kBadUtf8)) == "bad_utf8");
  CHECK(std::string(corbel::errc_name(Errc::kOutOfMemory)) == "out_of_memory");
  CHECK(std::string(corbel::errc_name(Errc::kContextOverflow)) == "context_overflow");
  CHECK(std::string(corbel::errc_name(Errc::kInternal)) == "internal");
  CHECK(std::string(corbel::errc_name(static_cast<Errc>(255))) == "unknown");
}

TEST_CASE("a status carries a code and a message") {
  const Status ok;
  CHECK(ok.ok());
  CHECK(ok.code() == Errc::kOk);
  CHECK(ok.message().empty());
  CHECK(ok.with_place("here").ok());

  const Status error(Errc::kTruncated, "offset 12: expected 8 bytes, got 3");
  CHECK_FALSE(error.ok());
  CHECK(error.code() == Errc::kTruncated);
  CHECK(error.message() == "offset 12: expected 8 bytes, got 3");
  const Status placed = error.with_place("model.gguf");
  CHECK(placed.code() == Errc::kTruncated);
  CHECK(placed.message() == "model.gguf: offset 12: expected 8 bytes, got 3");
  // A place that is named already is not named again, nor a folder before a file in it.
  CHECK(placed.with_place("model.gguf").message() == placed.message());
  CHECK(placed.with_place("model").message() == "model: model.gguf: offset 12: expected 8 bytes, got 3");
  const Status inside(Errc::kIoOpen, "a/b/model.safetensors: no such file");
  for (const char* folder : {"a/b", "a/b/", "a/b//"}) CHECK(inside.with_place(folder).message() == inside.message());
  const Status odd = Status(Errc::kIoOpen, "no such file").with_place("a\nb");
  CHECK(odd.with_place("a\nb").message() == "a\\x0Ab: no such file");
  const Status copy = placed;  // shares the text
  CHECK(copy.message().data() == placed.message().data());
}

TEST_CASE("messages are clean: no control bytes, valid UTF-8, at most 512 bytes") {
  CHECK(Status(Errc::kBadValue, "a\nb\x1b[31m").message() == "a\\x0Ab\\x1B[31m");
  CHECK(Status(Errc::kBadUtf8, "x\xff\xc3").message() == "x\xEF\xBF\xBD\xEF\xBF\xBD");
  const Status longer(Errc::kBadValue, std::string(2000, 'x'));
  CHECK(longer.message().size() == 512);
  CHECK(longer.message().substr(509) == "...");
  CHECK(Status(Errc::kBadValue, std::string(512, 'y')).message() == std::string(512, 'y'));
  // A cut never splits a code point.
  std::string euros;
  for (int i = 0; i < 400; ++i) euros += "\xE2\x82\xAC";
  const Status status(Errc::kBadValue, euros);
  CHECK(status.message().size() <= 512);
  CHECK((status.message().size() - 3) % 3 == 0);
}

TEST_CASE("a result holds a value or the reason why not") {
  Result<int> good = 7;
  CHECK(good.ok());
  CHECK(good.status().ok());
  CHECK(*good == 7);
  CHECK(good.value() == 7);
  CHECK(Result<std::string>("text").value() == "text");

  Result<int> bad = Status(Errc::kMissingKey, "general.architecture");
  CHECK_FALSE(bad.ok());
  CHECK(bad.status().code() == Errc::kMissingKey);
  try {
    (void)bad.value();
    FAIL("value() must throw");
  } catch (const corbel::Exception& e) {
    CHECK(e.code() == Errc::kMissingKey);
    CHECK(std::string(e.what()) == "general.architecture");
    CHECK(e.status().message() == "general.architecture");
  }
  // An ok status is no reason.
  CHECK(Result<int>(Status()).status().code() == Errc::kInternal);
}

namespace {

Status fails_if(bool fail) { return fail ? Status(Errc::kBadValue, "inner") : Status(); }
Result<int> twice(Result<int> input) {
  CORBEL_ASSIGN_OR_RETURN(const int value, std::move(input));
  CORBEL_RETURN_IF_ERROR(fails_if(value < 0));
  return 2 * value;
}

}  // namespace

TEST_CASE("the two macros pass errors on") {
  CHECK(twice(21).value() == 42);
  CHECK(twice(-1).status().message() == "inner");
  CHECK(twice(Status(Errc::kIoRead, "outer")).status().code() == Errc::kIoRead);
}

TEST_CASE("the boundary turns lack of memory into an error and lets a host's exception pass") {
  using corbel::detail::guard;
  CHECK(guard([]() -> Status { throw std::bad_alloc(); }).code() == Errc::kOutOfMemory);
  CHECK(guard([]() -> Result<int> { throw std::length_error("x"); }).status().code() == Errc::kOutOfMemory);
  CHECK(guard([]() -> Result<int> { return 3; }).value() == 3);
  CHECK_THROWS_AS(guard([]() -> Status { throw std::runtime_error("the host's"); }), std::runtime_error);
}

TEST_CASE("build_info tells the version and the mode") {
  const corbel::BuildInfo& info = corbel::build_info();
  CHECK(std::string(info.version) == std::to_string(CORBEL_VERSION_MAJOR) + "." + std::to_string(CORBEL_VERSION_MINOR) +
                                         "." + std::to_string(CORBEL_VERSION_PATCH));
#if CORBEL_HEADER_ONLY
  CHECK(std::string(info.mode) == "header-only");
#elif defined(CORBEL_SHARED)
  CHECK(std::string(info.mode) == "shared");
#else
  CHECK(std::string(info.mode) == "static");
#endif
  const std::string compiler = info.compiler;
  CHECK((compiler.rfind("gcc ", 0) == 0 || compiler.rfind("clang ", 0) == 0));
  CHECK(compiler.find_first_of("0123456789") != std::string::npos);
  CHECK(std::string(info.backends).find("ref") != std::string::npos);
}
