// FakeBackend: a test backend that behaves like a device with memory and a clock of its own, so that it meets every
// shortcut of host code that a GPU would trip over. Its arithmetic is that of the reference backend;
// docs/how-to/add-a-backend.md walks through this file.
//
//   * The host cannot touch a buffer: its pages fault outside the device's own work.
//   * Nothing happens before synchronize(): then pending work of all streams runs in a random legal order (in order
//   within a stream).
//   * The source of an upload is read when the upload runs; a host that changed it meanwhile gets Errc::kInternal.
//   * The target of a download holds garbage until then.
#pragma once

#include <corbel/backends/ref/ref_backend.hpp>
#include <corbel/context.hpp>
#include <corbel/hal/backend.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <fake_device/protected_memory.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace corbel_test {

namespace hal = corbel::hal;

/// Satisfies hal::Backend. One Device is shared by the backend and its streams.
class FakeBackend {
 private:
  struct Queue {
    std::uint32_t id = 0;
    std::deque<std::function<corbel::Status()>> commands;
    corbel::Status error;  // the first since the last synchronize()
  };

  struct Device {
    Device(std::shared_ptr<ProtectedMemory> memory_in, const corbel::ContextOptions& options)
        : memory(std::move(memory_in)), context(options) {}

    std::shared_ptr<ProtectedMemory> memory;
    corbel::Context
        context;       // the host's options with the device's memory; its budget counts the device's memory alone
    std::mutex mutex;  // guards what follows, and the work itself
    std::vector<Queue*> queues;
    std::uint32_t next_id = 0;
    std::minstd_rand random{1};
    std::vector<std::uint32_t> executed;  // ids of the streams whose work ran, in order
  };

 public:
  static constexpr const char* kName = "fake";

  using Buffer = corbel::RefBackend::Buffer;
  using Weight = corbel::RefBackend::Weight;

  class Stream {
   public:
    Stream(Stream&&) noexcept = default;
    Stream& operator=(Stream&& other) noexcept {
      std::swap(device_, other.device_);
      std::swap(queue_, other.queue_);
      return *this;
    }
    /// Work that was never synchronized is dropped.
    ~Stream() {
      if (!queue_) return;
      const std::lock_guard<std::mutex> lock(device_->mutex);
      std::erase(device_->queues, queue_.get());
    }

   private:
    friend class FakeBackend;
    Stream(std::shared_ptr<Device> device, std::unique_ptr<Queue> queue) noexcept
        : device_(std::move(device)), queue_(std::move(queue)) {}
    std::shared_ptr<Device> device_;
    std::unique_ptr<Queue> queue_;
  };

  static corbel::Result<FakeBackend> create(const corbel::Context& context) {
    corbel::ContextOptions options = context.options();
    const auto memory = std::make_shared<ProtectedMemory>();
    options.memory = memory.get();
    auto device = std::make_shared<Device>(memory, options);
    CORBEL_ASSIGN_OR_RETURN(corbel::RefBackend ref, corbel::RefBackend::create(device->context));
    return FakeBackend(std::move(device), std::move(ref));
  }

  corbel::Result<Buffer> allocate(std::uint64_t bytes, std::string_view what) const {
    return ref_.allocate(bytes, what);
  }
  corbel::Result<Weight> prepare(const hal::WeightSpec& spec) const {
    const ProtectedMemory::Access access(*device_->memory);
    return ref_.prepare(spec);
  }
  std::uint64_t weight_bytes(const hal::WeightSpec& spec) const { return ref_.weight_bytes(spec); }
  bool supports(const hal::Op& op, const hal::Program& program) const { return ref_.supports(op, program); }
  std::uint64_t workspace_bytes(const hal::Program& program, const hal::BatchLimits& limits) const {
    return ref_.workspace_bytes(program, limits);
  }
  hal::KvLayout kv_layout(const hal::KvSpec& spec) const { return ref_.kv_layout(spec); }

  corbel::Result<Stream> make_stream() const {
    const std::lock_guard<std::mutex> lock(device_->mutex);
    auto queue = std::make_unique<Queue>();
    queue->id = device_->next_id++;
    device_->queues.push_back(queue.get());
    return Stream(device_, std::move(queue));
  }

  corbel::Status upload(Stream& stream, Buffer& to, std::uint64_t offset, const void* from, std::uint64_t bytes) const {
    const std::uint64_t sum = checksum(from, bytes);
    return enqueue(stream, [ref = ref_, &to, offset, from, bytes, sum] {
      if (checksum(from, bytes) != sum) {
        return corbel::Status(corbel::Errc::kInternal,
                              "fake device: the host changed the source of an upload before synchronize()");
      }
      corbel::RefBackend::Stream at_once;
      return ref.upload(at_once, to, offset, from, bytes);
    });
  }
  corbel::Status download(Stream& stream, const Buffer& from, std::uint64_t offset, void* to,
                          std::uint64_t bytes) const {
    if (bytes != 0) std::memset(to, 0xcd, static_cast<std::size_t>(bytes));
    return enqueue(stream, [ref = ref_, &from, offset, to, bytes] {
      corbel::RefBackend::Stream at_once;
      return ref.download(at_once, from, offset, to, bytes);
    });
  }
  corbel::Status copy_kv_block(Stream& stream, Buffer& kv, const hal::KvLayout& layout, std::int32_t from,
                               std::int32_t to) const {
    return enqueue(stream, [ref = ref_, &kv, &layout, from, to] {
      corbel::RefBackend::Stream at_once;
      return ref.copy_kv_block(at_once, kv, layout, from, to);
    });
  }
  corbel::Status run(Stream& stream, const hal::Bindings<FakeBackend>& b) const {
    hal::Bindings<corbel::RefBackend> work;
    work.program = b.program;
    work.weights = b.weights;
    work.arena_plan = b.arena_plan;
    work.arena = b.arena;
    work.workspace = b.workspace;
    work.batch_layout = b.batch_layout;
    work.batch = b.batch;
    work.kv_layout = b.kv_layout;
    work.kv = b.kv;
    return enqueue(stream, [ref = ref_, work] {
      corbel::RefBackend::Stream at_once;
      return ref.run(at_once, work);
    });
  }

  /// Runs work of randomly chosen streams until this one has none left. An error ends the work of its stream.
  corbel::Status synchronize(Stream& stream) const {
    const std::lock_guard<std::mutex> lock(device_->mutex);
    const ProtectedMemory::Access access(*device_->memory);
    while (!stream.queue_->commands.empty()) {
      std::vector<Queue*> ready;
      for (Queue* queue : device_->queues) {
        if (!queue->commands.empty()) ready.push_back(queue);
      }
      Queue& queue = *ready[device_->random() % ready.size()];
      const std::function<corbel::Status()> command = std::move(queue.commands.front());
      queue.commands.pop_front();
      device_->executed.push_back(queue.id);
      if (corbel::Status status = command(); !status.ok()) {
        queue.commands.clear();
        queue.error = std::move(status);
      }
    }
    return std::exchange(stream.queue_->error, corbel::Status());
  }

  std::string describe() const { return "fake: deferred, protected " + ref_.describe(); }

  // For tests of the device itself.
  void seed(std::uint32_t value) const { device_->random.seed(value); }
  ProtectedMemory& memory() const { return *device_->memory; }
  const std::vector<std::uint32_t>& executed() const { return device_->executed; }

 private:
  FakeBackend(std::shared_ptr<Device> device, corbel::RefBackend ref)
      : device_(std::move(device)), ref_(std::move(ref)) {}

  corbel::Status enqueue(Stream& stream, std::function<corbel::Status()> command) const {
    const std::lock_guard<std::mutex> lock(device_->mutex);
    stream.queue_->commands.push_back(std::move(command));
    return {};
  }

  static std::uint64_t checksum(const void* memory, std::uint64_t bytes) {  // FNV-1a
    std::uint64_t sum = 0xcbf29ce484222325u;
    const auto* at = static_cast<const unsigned char*>(memory);
    for (std::uint64_t i = 0; i < bytes; ++i) sum = (sum ^ at[i]) * 0x100000001b3u;
    return sum;
  }

  std::shared_ptr<Device> device_;
  corbel::RefBackend ref_;
};

static_assert(hal::Backend<FakeBackend>);

}  // namespace corbel_test
