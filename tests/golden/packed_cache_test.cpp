// Packed weights kept in a file between runs: the same bits with and without, and nothing that a file can hold does
// harm. Also values that are tuned: no bit depends on them.
#include <catch2/catch.hpp>
#include <ctime>
#include <fcntl.h>
#include <mutex>
#include <random>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "support/golden.hpp"

using namespace corbel;
using namespace corbel_test;
namespace fs = std::filesystem;

#if CORBEL_HAS_CPU
namespace {

/// A folder that goes at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "corbel_packed_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string path(const std::string& name = {}) const { return name.empty() ? path_ : path_ + "/" + name; }

 private:
  std::string path_;
};

/// Log lines that are about packed files.
struct Log {
  std::mutex mutex;
  std::string text;
  static void write(void* self, LogLevel level, std::string_view line) noexcept {
    Log& log = *static_cast<Log*>(self);
    const std::lock_guard<std::mutex> lock(log.mutex);
    if (line.starts_with("packed cache:"))
      log.text += (level == LogLevel::kWarning ? "warning: " : "") + std::string(line) + "\n";
  }
  bool has(std::string_view part) const { return text.find(part) != std::string::npos; }
};

struct Run {
  std::vector<float> logits;
  std::string log;
  bool has(std::string_view part) const { return log.find(part) != std::string::npos; }
};

/// Loads with a cache (empty: without) and computes some logits of either role.
Run run(const std::string& model, const std::string& cache, ContextOptions options = {.threads = 2},
        models::PackedUse use = models::PackedUse::kMap) {
  Log log;
  options.log = {&Log::write, &log};
  LoadOptions load;
  load.packed_cache = cache;
  load.packed_use = use;
  auto running = Running<CpuBackend>::load(model, Context(options), {.max_tokens = 128}, load);
  auto batch = Batch<CpuBackend>::create(running.cache, {.max_rows = 32, .max_wanted = 32}).value();
  std::mt19937 random(11);
  std::vector<TokenId> ids(24);
  for (TokenId& id : ids) id = static_cast<TokenId>(random() % running.model.spec().vocab);
  Run result;
  for (const Role role : {Role::kPrompt, Role::kGenerated}) {
    Sequence<CpuBackend> sequence(running.cache);
    const std::vector<float> logits = all_logits(batch, sequence, ids, role == Role::kPrompt ? 24 : 5, role);
    result.logits.insert(result.logits.end(), logits.begin(), logits.end());
  }
  result.log = log.text;
  return result;
}

bool same_bits(const Run& a, const Run& b) {
  return !a.logits.empty() && a.logits.size() == b.logits.size() &&
         std::memcmp(a.logits.data(), b.logits.data(), a.logits.size() * sizeof(float)) == 0;
}

std::vector<fs::path> packed_files(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".packed") files.push_back(entry.path());
  return files;
}

void write_file(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string tiny() { return test_data("golden/llama-q4_k_m/model.gguf"); }

}  // namespace

TEST_CASE("packed cache: the same bits with and without, at every level") {
  for (const IsaLevel level : isa_levels("packed cache: the same bits with and without, at every level")) {
    const ContextOptions options = options_at(level, 2);
    for (const char* name : {"golden/llama-q4_k_m/model.gguf", "golden/qwen2-f16/model.gguf", "golden/gpt-oss",
                             "golden/gpt2-by-layer", "golden/deepseek-v2-lite", "golden_quantized/gptq-dynamic"}) {
      INFO(name << " at " << isa_name(level));
      const TemporaryFolder folder;
      const std::string model = test_data(name);
      const Run plain = run(model, {}, options), first = run(model, folder.path("made/"), options);
      CHECK(plain.log.empty());
      CHECK(first.has("wrote"));
      CHECK_FALSE(first.has("warning"));
      const Run mapped = run(model, folder.path("made"), options);
      const Run read = run(model, folder.path("made"), options, models::PackedUse::kRead);
      CHECK(mapped.has("mapped"));
      CHECK(read.has("read"));
      CHECK_FALSE((mapped.has("wrote") || read.has("wrote")));
      CHECK(same_bits(plain, first));
      CHECK(same_bits(plain, mapped));
      CHECK(same_bits(plain, read));
      CHECK(packed_files(folder.path("made")).size() == 1);
    }
  }
}

TEST_CASE("packed cache: a damaged file is not used, and is written anew") {
  const TemporaryFolder folder;
  const Run plain = run(tiny(), {});
  run(tiny(), folder.path());
  const fs::path file = packed_files(folder.path()).at(0);
  const std::string good = read_file(file.string());
  REQUIRE(good.size() > 8192);
  const auto check = [&](const std::string& what, std::string_view bytes) {
    INFO(what);
    write_file(file, bytes);
    const models::PackedUse use = bytes.size() % 2 == 0 ? models::PackedUse::kMap : models::PackedUse::kRead;
    const Run damaged = run(tiny(), folder.path(), {.threads = 2}, use);
    CHECK(damaged.has("warning"));
    CHECK(damaged.has("is not used"));
    CHECK(damaged.has("wrote"));
    CHECK(same_bits(plain, damaged));
    CHECK(read_file(file.string()) == good);
  };
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{95}, std::size_t{96}, std::size_t{500},
                                 std::size_t{4096}, good.size() / 2, good.size() - 1})
    check("cut to " + std::to_string(size), std::string_view(good).substr(0, size));
  check("one byte longer", good + "x");
  check("something else", "GGUF" + std::string(good.size(), 'x'));
  // Of the header every field, of the table every field of two entries, of the weights some bytes and the last one.
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < 96 + 2 * 56; at += 4) places.push_back(at);
  for (std::size_t i = 0; i < 6; ++i) places.push_back(4096 + (good.size() - 4096) / 7 * i);
  places.push_back(good.size() - 1);
  for (const std::size_t at : places) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    check("byte " + std::to_string(at) + " changed", bad);
  }
}

// Whoever writes the file can also write its digests; then what it says of places and sizes must still hold.
TEST_CASE("packed cache: a file whose digests are right is checked like any other") {
  const TemporaryFolder folder;
  const Run plain = run(tiny(), {});
  run(tiny(), folder.path());
  const fs::path file = packed_files(folder.path()).at(0);
  const std::string good = read_file(file.string());
  std::uint64_t entries = 0;
  std::memcpy(&entries, good.data() + 56, 8);
  REQUIRE(entries > 2);
  const auto forge = [&](std::size_t field_at, std::uint64_t value, bool number_of_entries) {
    std::string bad = good;
    std::memcpy(bad.data() + field_at, &value, 8);
    const std::uint64_t count = number_of_entries ? std::min<std::uint64_t>(value, entries) : entries;
    const auto digest_to = [&](std::size_t begin, std::size_t size, std::size_t to) {
      const detail::Digest digest = detail::digest(std::string_view(bad).substr(begin, size));
      std::memcpy(bad.data() + to, &digest, sizeof digest);
    };
    digest_to(96, static_cast<std::size_t>(count) * 56, 64);
    digest_to(0, 80, 80);
    write_file(file, bad);
    const Run forged = run(tiny(), folder.path());
    CHECK(forged.has("is not used"));
    CHECK(same_bits(plain, forged));
  };
  for (const std::uint64_t value : {std::uint64_t{0}, entries - 1, entries + 1, std::uint64_t{1} << 40, UINT64_MAX})
    forge(56, value, true);
  for (std::size_t field = 0; field < 3; ++field) {  // number of the weight, offset, bytes
    for (const std::uint64_t value :
         {std::uint64_t{8}, std::uint64_t{good.size()}, std::uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 63}) {
      INFO("field " << field << " of an entry is " << value);
      forge(96 + 56 + field * 8, value, false);
    }
  }
}

TEST_CASE("packed cache: another checkpoint is not taken for the one that was packed") {
  const TemporaryFolder folder;
  const std::string copy = folder.path("model.gguf"), cache = folder.path("cache");
  fs::copy_file(tiny(), copy);
  run(tiny(), cache);
  CHECK(run(copy, cache).has("mapped"));  // a copy is known by its bytes

  // A byte of a tensor that no sample holds, the size and time of change as before.
  const std::string bytes = read_file(copy);
  const auto checkpoint = Checkpoint::open(copy, Context()).value();
  const TensorInfo* tensor = checkpoint.find_tensor("blk.0.ffn_up.weight");
  REQUIRE(tensor != nullptr);
  REQUIRE(tensor->bytes > 12000);
  std::string changed = bytes;
  const auto at = static_cast<std::size_t>(tensor->offset + 5000 - 5000 % 144 + 20);
  changed[at] = static_cast<char>(changed[at] ^ 1);
  struct stat before = {};
  REQUIRE(stat(copy.c_str(), &before) == 0);
  write_file(copy, changed);
  const timespec times[2] = {before.st_atim, before.st_mtim};
  REQUIRE(utimensat(AT_FDCWD, copy.c_str(), times, 0) == 0);
  const Run plain = run(copy, {}), other = run(copy, cache);
  CHECK(other.has("was made from another checkpoint"));
  CHECK(same_bits(plain, other));
  CHECK_FALSE(same_bits(run(tiny(), {}), other));

  // What is sampled has a file of its own.
  changed[static_cast<std::size_t>(tensor->offset) + 20] ^= 1;
  write_file(copy, changed);
  CHECK_FALSE(run(copy, cache).has("warning"));
  CHECK(packed_files(cache).size() == 2);
}

TEST_CASE("packed cache: where nothing can be written the load goes on") {
  const TemporaryFolder folder;
  const Run plain = run(tiny(), {});
  write_file(folder.path("file"), "no folder");
  for (const std::string& cache : {folder.path("file"), folder.path("not/there"), std::string("a\0b", 3)}) {
    const Run result = run(tiny(), cache);
    CHECK(result.has("is not written"));
    CHECK(same_bits(plain, result));
  }
  LoadOptions load;
  load.packed_cache = folder.path("ref");
  CHECK(Model<RefBackend>::load(tiny(), Context({.threads = 1}), load).ok());
  CHECK_FALSE(fs::exists(folder.path("ref")));
}

TEST_CASE("packed cache: several at once") {
  const TemporaryFolder folder;
  const Run plain = run(tiny(), {});
  std::vector<Run> results(6);
  std::vector<std::thread> threads;
  for (Run& result : results)
    threads.emplace_back([&] {
      for (int i = 0; i < 3; ++i) result = run(tiny(), folder.path(), {.threads = 1});
    });
  for (std::thread& thread : threads) thread.join();
  for (const Run& result : results) {
    CHECK(same_bits(plain, result));
    CHECK_FALSE(result.has("warning"));
  }
  CHECK(packed_files(folder.path()).size() == 1);
  for (const auto& entry : fs::directory_iterator(folder.path()))
    CHECK(entry.path().string().find(".part") == std::string::npos);
}

TEST_CASE("packed cache: progress reaches the total, and stopping cancels") {
  const TemporaryFolder folder;
  for (const bool written : {false, true}) {
    std::uint64_t last = 0, total = 1, calls = 0, stop_at = UINT64_MAX;
    LoadOptions load;
    load.packed_cache = folder.path();
    load.progress = [&](LoadPhase, std::uint64_t done, std::uint64_t all) {
      CHECK(done >= last);
      last = done;
      total = all;
      return ++calls < stop_at;
    };
    const Context context({.threads = 2});
    REQUIRE(Model<CpuBackend>::load(tiny(), context, load).ok());
    CHECK(last + 1024 >= total);  // constants are not read
    const std::uint64_t all_calls = calls;
    for (stop_at = 1; stop_at < all_calls; stop_at += std::max<std::uint64_t>(1, all_calls / 7)) {
      last = calls = 0;
      if (!written) fs::remove(packed_files(folder.path()).at(0));
      CHECK(Model<CpuBackend>::load(tiny(), context, load).status().code() == Errc::kCancelled);
      if (!written) {
        stop_at = UINT64_MAX - all_calls;
        last = calls = 0;
        REQUIRE(Model<CpuBackend>::load(tiny(), context, load).ok());
        break;
      }
    }
  }
}

TEST_CASE("tuning changes no bit") {
  for (const IsaLevel level : isa_levels("tuning changes no bit")) {
    for (const char* name : {"golden/llama-q4_k_m/model.gguf", "golden/gpt-oss"}) {
      INFO(name << " at " << isa_name(level));
      ContextOptions options = options_at(level, 2);
      const Run expected = run(test_data(name), {}, options);
      for (const TuningOptions tuning :
           {TuningOptions{false, 1, 1, 1}, TuningOptions{false, 64, UINT32_MAX, 1},
            TuningOptions{false, UINT32_MAX, 1, 4}, TuningOptions{false, 16384, 100000, 9}}) {
        options.tuning = tuning;
        CHECK(same_bits(run(test_data(name), {}, options), expected));
      }
    }
  }
}

TEST_CASE("tuning is measured once for a context, or fixed") {
  const std::string path = real_model("smollm2", "tuning is measured once for a context, or fixed");
  const Context fixed({.threads = 2, .tuning = {.measure = false}}), tiny_only({.threads = 2});
  REQUIRE(Model<CpuBackend>::load(tiny(), tiny_only).ok());
  CHECK(tiny_only.measured() == 0);
  CHECK(CpuBackend::create(fixed).value().describe_tuning() ==
        "prefetch 4096 bytes ahead (not measured), streams (not measured), regions from 12288 operations on (not "
        "measured)");
  const Context given({.threads = 2, .tuning = {true, 512, 99, 1}});
  CHECK(CpuBackend::create(given).value().describe_tuning() ==
        "prefetch 512 bytes ahead (given), one stream (given), regions from 99 operations on (given)");
  if (path.empty()) return;
  REQUIRE(Model<CpuBackend>::load(path, fixed).ok());
  CHECK(fixed.measured() == 0);
  const Context measured({.threads = 2});
  REQUIRE(Model<CpuBackend>::load(path, measured).ok());
  const std::uint64_t word = measured.measured();
  CHECK(word != 0);
  REQUIRE(Model<CpuBackend>::load(path, measured).ok());
  CHECK(measured.measured() == word);
}

TEST_CASE("what was measured is kept with the packed files") {
  const TemporaryFolder folder;
  const std::string name = "a machine, avx2, 2 threads";
  const std::string made = folder.path("made");
  CHECK(models::read_tuning_profile(made, name) == 0);
  REQUIRE(models::write_tuning_profile(made, name, 77).ok());
  CHECK(models::read_tuning_profile(made, name) == 77);
  CHECK(models::read_tuning_profile(made + "/", name) == 77);
  CHECK(models::read_tuning_profile(made, name + "s") == 0);
  const fs::path file = fs::directory_iterator(made)->path();
  CHECK(file.extension() == ".tuned");
  const std::string whole = read_file(file.string());
  for (std::size_t i = 0; i < whole.size(); ++i) {  // a byte changed, or the rest missing
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    for (const std::string& bytes : {damaged, whole.substr(0, i), whole + whole.substr(i)}) {
      write_file(file, bytes);
      CHECK(models::read_tuning_profile(made, name) == 0);
    }
  }
  REQUIRE(models::write_tuning_profile(made, name, 78).ok());
  CHECK(models::read_tuning_profile(made, name) == 78);
  CHECK(models::write_tuning_profile(file.string(), name, 1).code() == Errc::kIoOpen);  // a file is no folder

  const std::string path = real_model("smollm2", "what was measured is kept with the packed files");
  if (path.empty()) return;
  LoadOptions options;
  options.packed_cache = folder.path();
  const Context first({.threads = 2}), second({.threads = 2}), other({.threads = 1});
  REQUIRE(Model<CpuBackend>::load(path, first, options).ok());
  CHECK(first.measured() != 0);
  const std::string identity = CpuBackend::create(first).value().tuning_identity();
  CHECK(models::read_tuning_profile(folder.path(), identity) == first.measured());
  const std::uint64_t chosen = first.measured() ^ (std::uint64_t{1} << 40);  // no measurement makes this
  REQUIRE(models::write_tuning_profile(folder.path(), identity, chosen).ok());
  REQUIRE(Model<CpuBackend>::load(path, second, options).ok());
  CHECK(second.measured() == chosen);
  CHECK(CpuBackend::create(other).value().tuning_identity() != identity);
}
#endif
