// The fake device does what it promises: protected memory, deferred work, random legal order, stale uploads found.
#include <catch2/catch.hpp>
#include <csignal>
#include <fake_device/fake_backend.hpp>
#include <set>
#include <support/op_harness.hpp>
#include <sys/wait.h>
#include <unistd.h>

namespace corbel_test {
namespace {

corbel::Context one_thread() { return corbel::Context({.threads = 1}); }

template <class T>
T take(corbel::Result<T> result) {
  REQUIRE(result.ok());
  return *std::move(result);
}

/// The signal that ends a child process which calls `body`; 0 where it exits.
template <class Body>
int signal_of(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);  // not the test runner's handler
    body();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  // Under a sanitizer the fault may be reported and end in a failing exit instead.
  return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) != 0 ? SIGSEGV : 0;
}

TEST_CASE("fake device: nothing happens before synchronize") {
  const FakeBackend backend = take(FakeBackend::create(one_thread()));
  FakeBackend::Stream stream = take(backend.make_stream());
  FakeBackend::Buffer buffer = take(backend.allocate(64, "test"));
  const std::vector<unsigned char> source(64, 0x11);
  std::vector<unsigned char> target(64, 0);
  REQUIRE(backend.upload(stream, buffer, 0, source.data(), 64).ok());
  REQUIRE(backend.download(stream, buffer, 0, target.data(), 64).ok());
  CHECK(target == std::vector<unsigned char>(64, 0xcd));
  CHECK(backend.executed().empty());
  REQUIRE(backend.synchronize(stream).ok());
  CHECK(target == source);
  CHECK(backend.executed().size() == 2);
}

TEST_CASE("fake device: fresh memory is NaN") {
  const FakeBackend backend = take(FakeBackend::create(one_thread()));
  FakeBackend::Stream stream = take(backend.make_stream());
  const FakeBackend::Buffer buffer = take(backend.allocate(8, "test"));
  float target[2] = {0, 0};
  REQUIRE(backend.download(stream, buffer, 0, target, 8).ok());
  REQUIRE(backend.synchronize(stream).ok());
  CHECK(std::isnan(target[0]));
  CHECK(std::isnan(target[1]));
}

TEST_CASE("fake device: an upload whose source changes early is found") {
  const FakeBackend backend = take(FakeBackend::create(one_thread()));
  FakeBackend::Stream stream = take(backend.make_stream());
  FakeBackend::Buffer buffer = take(backend.allocate(64, "test"));
  std::vector<unsigned char> source(64, 0x11);
  REQUIRE(backend.upload(stream, buffer, 0, source.data(), 64).ok());
  source[63] = 0x12;
  CHECK(backend.synchronize(stream).code() == corbel::Errc::kInternal);
  CHECK(backend.synchronize(stream).ok());  // reported once
  REQUIRE(backend.upload(stream, buffer, 0, source.data(), 64).ok());
  CHECK(backend.synchronize(stream).ok());
}

TEST_CASE("fake device: copies outside a buffer are errors at synchronize") {
  const FakeBackend backend = take(FakeBackend::create(one_thread()));
  FakeBackend::Stream stream = take(backend.make_stream());
  FakeBackend::Buffer buffer = take(backend.allocate(64, "test"));
  const std::vector<unsigned char> source(64, 0x11);
  std::vector<unsigned char> target(64, 0);
  REQUIRE(backend.upload(stream, buffer, 1, source.data(), 64).ok());
  REQUIRE(backend.download(stream, buffer, 0, target.data(), 64).ok());  // dropped with its stream's error
  CHECK(backend.synchronize(stream).code() == corbel::Errc::kInternal);
  CHECK(target == std::vector<unsigned char>(64, 0xcd));
  CHECK(backend.executed().size() == 1);
}

TEST_CASE("fake device: the host cannot touch memory, not even after synchronize") {
  const FakeBackend backend = take(FakeBackend::create(one_thread()));
  FakeBackend::Stream stream = take(backend.make_stream());
  FakeBackend::Buffer buffer = take(backend.allocate(64, "test"));
  const std::vector<unsigned char> source(64, 0x11);
  REQUIRE(backend.upload(stream, buffer, 0, source.data(), 64).ok());
  REQUIRE(backend.synchronize(stream).ok());
  volatile unsigned char* address = static_cast<unsigned char*>(backend.memory().any_region());
  REQUIRE(address != nullptr);
  CHECK(signal_of([&] { static_cast<void>(address[0]); }) == SIGSEGV);
  CHECK(signal_of([&] { address[0] = 1; }) == SIGSEGV);
  CHECK(signal_of([&] {
          const ProtectedMemory::Access access(backend.memory());
          address[0] = 1;
        }) == 0);
  buffer = FakeBackend::Buffer();
  CHECK(backend.memory().any_region() == nullptr);
  CHECK(signal_of([&] { static_cast<void>(address[0]); }) == SIGSEGV);  // after the free
}

TEST_CASE("fake device: order holds within a stream and varies across streams") {
  std::set<std::vector<std::uint32_t>> orders;
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    const FakeBackend backend = take(FakeBackend::create(one_thread()));
    backend.seed(seed);
    FakeBackend::Stream a = take(backend.make_stream()), b = take(backend.make_stream());
    FakeBackend::Buffer buffer_a = take(backend.allocate(4, "a")), buffer_b = take(backend.allocate(4, "b"));
    std::vector<std::int32_t> sources(20), results_a(20, -1), results_b(20, -1);
    for (std::size_t i = 0; i < 20; ++i) {
      sources[i] = static_cast<std::int32_t>(i);
      REQUIRE(backend.upload(a, buffer_a, 0, &sources[i], 4).ok());
      REQUIRE(backend.upload(b, buffer_b, 0, &sources[i], 4).ok());
      REQUIRE(backend.download(a, buffer_a, 0, &results_a[i], 4).ok());
      REQUIRE(backend.download(b, buffer_b, 0, &results_b[i], 4).ok());
    }
    REQUIRE(backend.synchronize(a).ok());
    CHECK(results_a == sources);
    REQUIRE(backend.synchronize(b).ok());
    CHECK(results_b == sources);
    CHECK(std::count(backend.executed().begin(), backend.executed().end(), 0u) == 40);
    CHECK(std::count(backend.executed().begin(), backend.executed().end(), 1u) == 40);
    orders.insert(backend.executed());
  }
  CHECK(orders.size() == 5);
}

TEST_CASE("fake device: buffers outlive their backend, and pending work of a dropped stream never runs") {
  FakeBackend::Buffer buffer;
  {
    const FakeBackend backend = take(FakeBackend::create(one_thread()));
    buffer = take(backend.allocate(64, "test"));
    FakeBackend::Stream kept = take(backend.make_stream());
    {
      FakeBackend::Stream dropped = take(backend.make_stream());
      const std::vector<unsigned char> gone(64, 0x11);
      REQUIRE(backend.upload(dropped, buffer, 0, gone.data(), 64).ok());
    }
    unsigned char first = 0;
    REQUIRE(backend.download(kept, buffer, 0, &first, 1).ok());
    REQUIRE(backend.synchronize(kept).ok());
    CHECK(first == 0xff);
  }
  CHECK(buffer.bytes() == 64);
}

TEST_CASE("fake device: a cache block is copied whole") {
  const FakeBackend backend = take(FakeBackend::create(one_thread()));
  FakeBackend::Stream stream = take(backend.make_stream());
  const hal::KvLayout layout = backend.kv_layout({{{1, 8}}, 16, hal::KvType::kF16});
  FakeBackend::Buffer kv = take(backend.allocate(3 * layout.block_bytes, "cache"));
  std::vector<unsigned char> source(layout.block_bytes), target(3 * layout.block_bytes);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i % 251);
  REQUIRE(backend.upload(stream, kv, layout.block_bytes, source.data(), source.size()).ok());
  REQUIRE(backend.copy_kv_block(stream, kv, layout, 1, 2).ok());
  REQUIRE(backend.download(stream, kv, 0, target.data(), target.size()).ok());
  REQUIRE(backend.synchronize(stream).ok());
  CHECK(std::equal(source.begin(), source.end(), target.begin() + static_cast<std::ptrdiff_t>(2 * layout.block_bytes)));
  CHECK(target[0] == 0xff);
  REQUIRE(backend.copy_kv_block(stream, kv, layout, 1, 3).ok());
  CHECK(backend.synchronize(stream).code() == corbel::Errc::kInternal);
}

}  // namespace
}  // namespace corbel_test
