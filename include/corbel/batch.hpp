// Batch: rows of one or several sequences that go through the model in one run.
//
//   auto batch = corbel::Batch<>::create(cache).value();
//   if (corbel::Status added = batch.add(sequence, ids, corbel::Role::kPrompt); !added.ok()) return added;
//   auto logits = batch.forward().value();                              // of the last token of each piece
//   std::span<const float> row = logits.row(0);                         // [vocab]
#pragma once

#include <corbel/config.hpp>
#include <corbel/detail/fp_environment.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/error.hpp>
#include <corbel/graph/passes.hpp>
#include <corbel/hal/batch.hpp>
#include <corbel/kv_cache.hpp>
#include <corbel/model.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN

/// Which tokens of an added piece get logits.
enum class Wanted : std::uint8_t { kNone, kLast, kAll };

struct BatchOptions {
  std::uint32_t max_rows = 512;     ///< tokens in one run
  std::uint32_t max_wanted = 8;     ///< rows of logits in one run; each costs 4 * vocabulary bytes twice
  std::uint32_t max_sequences = 8;  ///< sequences in one run
};

/// Logits of the wanted rows, in the order in which they were added. Valid until the batch's next forward() or its end.
struct Logits {
  std::span<const float> values;  ///< [rows, vocab]
  std::size_t rows = 0;
  std::size_t vocab = 0;
  std::span<const float> row(std::size_t index) const noexcept { return values.subspan(index * vocab, vocab); }
};

/// Owns what a run needs besides the model: arena, workspace, queue, staging memory. Belongs to one thread at a time;
/// several batches of one model may run at the same time. Movable. The logits of a row do not depend on what else is in
/// the batch, nor on how a prompt is cut into runs.
template <hal::Backend B = DefaultBackend>
class Batch {
 public:
  /// kInvalidArgument (a capacity of 0 or above 2^20), kOutOfMemory.
  static Result<Batch> create(const KVCache<B>& cache, const BatchOptions& options = {}) {
    return detail::guard([&]() -> Result<Batch> {
      for (const auto& [name, value] :
           {std::pair("max_rows", options.max_rows), std::pair("max_wanted", options.max_wanted),
            std::pair("max_sequences", options.max_sequences)})
        if (value == 0 || value > (1u << 20))
          return Status(Errc::kInvalidArgument,
                        std::string(name) + ": " + std::to_string(value) + " is not in 1..1048576");
      Batch batch(cache, options);
      CORBEL_RETURN_IF_ERROR(batch.allocate());
      return batch;
    });
  }

  /// Adds `ids` to the end of `sequence` in the next run. The sequence must stay where it is until then. Errors leave
  /// the batch as it was: kInvalidArgument (no ids, an id outside the vocabulary, a sequence of another cache or
  /// already in the batch), kLimitExceeded (a capacity of the batch), kContextOverflow (more positions than the model
  /// has).
  Status add(Sequence<B>& sequence, std::span<const TokenId> ids, Role role, Wanted wanted = Wanted::kLast) {
    return detail::guard([&] { return add_piece(sequence, ids, role, wanted); });
  }

  /// Runs what was added and empties the batch. On success the sequences are longer; on any error they are as before:
  /// kOutOfMemory (too few free blocks, with numbers), errors of the backend.
  Result<Logits> forward() {
    const detail::ScopedFpEnvironment fp;
    Result<Logits> logits = detail::guard([&] { return run(); });
    clear();
    return logits;
  }
  /// Forgets what was added.
  void clear() noexcept {
    pieces_.clear();
    ids_.clear();
    num_wanted_ = 0;
  }

  const KVCache<B>& cache() const noexcept { return cache_; }
  const BatchOptions& options() const noexcept { return options_; }
  std::size_t num_rows() const noexcept { return ids_.size(); }
  /// Program runs so far.
  std::uint64_t num_runs() const noexcept { return num_runs_; }
  /// Bytes of arena, workspace and staging memory.
  std::uint64_t bytes() const noexcept {
    return arena_.bytes() + workspace_.bytes() + device_batch_.bytes() + staging_.size() + host_logits_.size();
  }

 private:
  struct Piece {
    Sequence<B>* sequence;
    std::size_t first_row;  // its ids are ids_[first_row, first_row + num_rows)
    std::size_t num_rows;
    Role role;
    Wanted wanted;
    std::size_t first_new_block =
        0;  // its new blocks are new_blocks_[first_new_block, first_new_block + num_new_blocks)
    std::size_t num_new_blocks = 0;  // the first is the copy of a shared tail, where there is one
    std::int32_t shared_tail = -1;   // the block that this copy replaces
  };

  Batch(const KVCache<B>& cache, const BatchOptions& options) : cache_(cache), options_(options) {}

  const Model<B>& model() const noexcept { return cache_.model(); }
  const B& backend() const noexcept { return cache_.model().backend(); }

  Status allocate() {
    const std::uint64_t positions = std::min<std::uint64_t>(model().spec().context_length, cache_.capacity());
    const hal::BatchLimits limits = {
        options_.max_rows, options_.max_wanted, options_.max_sequences,
        static_cast<std::uint32_t>((positions + cache_.block_tokens() - 1) / cache_.block_tokens()),
        models::num_length_frequencies(model().spec())};
    layout_ = hal::make_batch_layout(limits);
    plan_ = graph::plan_arena(model().program(), options_.max_rows, options_.max_wanted, model().passes().reuse_memory);
    CORBEL_ASSIGN_OR_RETURN(arena_, backend().allocate(plan_.bytes, "the arena"));
    CORBEL_ASSIGN_OR_RETURN(workspace_,
                            backend().allocate(backend().workspace_bytes(model().program(), limits), "the workspace"));
    CORBEL_ASSIGN_OR_RETURN(device_batch_, backend().allocate(layout_.bytes, "the batch"));
    CORBEL_ASSIGN_OR_RETURN(staging_, model().context().allocate(layout_.bytes, "the batch"));
    CORBEL_ASSIGN_OR_RETURN(
        host_logits_, model().context().allocate(
                          std::uint64_t{options_.max_wanted} * model().spec().vocab * sizeof(float), "the logits"));
    CORBEL_ASSIGN_OR_RETURN(auto stream, backend().make_stream());
    stream_ = std::make_unique<typename B::Stream>(std::move(stream));
    pieces_.reserve(options_.max_sequences);
    ids_.reserve(options_.max_rows);
    // Of each piece its rows' blocks, a last one in part, and the copy of a shared tail.
    new_blocks_.reserve(options_.max_rows / cache_.block_tokens() + 2 * std::size_t{options_.max_sequences});
    frequency_lengths_.resize(options_.max_sequences);
    return {};
  }

  Status add_piece(Sequence<B>& sequence, std::span<const TokenId> ids, Role role, Wanted wanted) {
    if (ids.empty()) return Status(Errc::kInvalidArgument, "no token ids");
    if (sequence.cache_.state_ != cache_.state_)
      return Status(Errc::kInvalidArgument, "the sequence belongs to another cache");
    for (const Piece& piece : pieces_)
      if (piece.sequence == &sequence) return Status(Errc::kInvalidArgument, "the sequence is in the batch already");
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (ids[i] < 0 || static_cast<std::uint32_t>(ids[i]) >= model().spec().vocab)
        return Status(Errc::kInvalidArgument, "token id " + std::to_string(ids[i]) + " at index " + std::to_string(i) +
                                                  " is outside the vocabulary of " +
                                                  std::to_string(model().spec().vocab));
    const std::uint64_t length = sequence.size() + ids.size();
    if (length > model().spec().context_length)
      return Status(Errc::kContextOverflow, std::to_string(length) + " tokens do not fit in the model's context of " +
                                                std::to_string(model().spec().context_length));
    const std::uint64_t wanted_rows = wanted == Wanted::kNone ? 0 : wanted == Wanted::kLast ? 1 : ids.size();
    if (pieces_.size() == options_.max_sequences || ids_.size() + ids.size() > options_.max_rows ||
        num_wanted_ + wanted_rows > options_.max_wanted)
      return Status(Errc::kLimitExceeded, "the batch is full: it has " + std::to_string(pieces_.size()) +
                                              " sequences, " + std::to_string(ids_.size()) + " rows, " +
                                              std::to_string(num_wanted_) + " wanted rows; asked for " +
                                              std::to_string(ids.size()) + " rows, " + std::to_string(wanted_rows) +
                                              " wanted; the limits are " + std::to_string(options_.max_sequences) +
                                              ", " + std::to_string(options_.max_rows) + ", " +
                                              std::to_string(options_.max_wanted));
    pieces_.push_back({&sequence, ids_.size(), ids.size(), role, wanted});
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    num_wanted_ += static_cast<std::uint32_t>(wanted_rows);
    return {};
  }

  Result<Logits> run() {
    if (pieces_.empty()) return Status(Errc::kInvalidArgument, "the batch is empty");
    CORBEL_RETURN_IF_ERROR(reserve());
    const Status status = execute();
    if (!status.ok()) {
      pool().release(new_blocks_);
      return status;
    }
    commit();
    ++num_runs_;
    const std::size_t vocab = model().spec().vocab;
    return Logits{{reinterpret_cast<const float*>(host_logits_.data()), num_wanted_ * vocab}, num_wanted_, vocab};
  }

  /// Takes all blocks that the pieces need, or none; makes room in the sequences' lists so that commit() cannot fail.
  Status reserve() {
    const std::size_t block_tokens = cache_.block_tokens();
    std::size_t needed = 0;
    for (Piece& piece : pieces_) {
      Sequence<B>& sequence = *piece.sequence;
      const std::size_t length = sequence.size() + piece.num_rows;
      const std::size_t blocks = (length + block_tokens - 1) / block_tokens;
      piece.first_new_block = needed;
      piece.num_new_blocks = blocks - sequence.blocks_.size();
      piece.shared_tail = -1;
      if (sequence.size() % block_tokens != 0 && pool().is_shared(sequence.blocks_.back())) {
        piece.shared_tail = sequence.blocks_.back();
        ++piece.num_new_blocks;
      }
      needed += piece.num_new_blocks;
      reserve_growing(sequence.blocks_, blocks);
      reserve_growing(sequence.tokens_, length);
      reserve_growing(sequence.roles_, length);
    }
    reserve_growing(new_blocks_, needed);
    new_blocks_.resize(needed);
    if (!pool().acquire(new_blocks_))
      return Status(Errc::kOutOfMemory, "the KV cache is full: " + std::to_string(needed) + " blocks of " +
                                            std::to_string(block_tokens) + " tokens needed, " +
                                            std::to_string(pool().num_free()) + " of " +
                                            std::to_string(pool().num_blocks()) + " free");
    return {};
  }
  std::span<const std::int32_t> new_blocks(const Piece& piece) const noexcept {
    return std::span<const std::int32_t>(new_blocks_).subspan(piece.first_new_block, piece.num_new_blocks);
  }
  /// Capacity for `size` elements, growing geometrically so that a step rarely allocates.
  template <class T>
  static void reserve_growing(std::vector<T>& list, std::size_t size) {
    if (size > list.capacity()) list.reserve(std::max(size, 2 * list.capacity()));
  }

  Status execute() {
    fill();
    Status status = enqueue();
    const Status finished = backend().synchronize(*stream_);  // also after an error: staging memory must be free again
    return status.ok() ? finished : status;
  }

  void fill() {
    hal::MutableBatchView view(staging_.data(), layout_);
    *view.header = {static_cast<std::int32_t>(ids_.size()), static_cast<std::int32_t>(num_wanted_),
                    static_cast<std::int32_t>(pieces_.size())};
    std::int32_t wanted = 0;
    for (std::size_t slot = 0; slot < pieces_.size(); ++slot) {
      const Piece& piece = pieces_[slot];
      const Sequence<B>& sequence = *piece.sequence;
      for (std::size_t i = 0; i < piece.num_rows; ++i) {
        const std::size_t row = piece.first_row + i;
        view.tokens[row] = ids_[row];
        view.positions[row] = static_cast<std::int32_t>(sequence.size() + i);
        view.slots[row] = static_cast<std::int32_t>(slot);
        view.roles[row] = piece.role;
        if (piece.wanted == Wanted::kAll || (piece.wanted == Wanted::kLast && i + 1 == piece.num_rows))
          view.wanted[wanted++] = static_cast<std::int32_t>(row);
      }
      if (const std::uint32_t length = planned_length(piece); frequency_lengths_[slot] != length) {
        models::fill_length_frequencies(model().spec(), length, view.frequencies_of(static_cast<std::int32_t>(slot)));
        frequency_lengths_[slot] = length;
      }
      hal::BlockEntry* table = view.table(static_cast<std::int32_t>(slot));
      const std::size_t kept = sequence.blocks_.size() - (piece.shared_tail >= 0 ? 1 : 0);
      const std::span<const std::int32_t> added = new_blocks(piece);
      for (std::size_t i = 0; i < kept + added.size(); ++i)
        table[i] = {i < kept ? sequence.blocks_[i] : added[i - kept],
                    static_cast<std::int32_t>(i * cache_.block_tokens())};
    }
  }

  /// For how many tokens a sequence is meant: as it was told, else what its first piece has.
  static std::uint32_t planned_length(const Piece& piece) noexcept {
    const Sequence<B>& sequence = *piece.sequence;
    return sequence.planned_ != 0 ? sequence.planned_ : static_cast<std::uint32_t>(piece.num_rows);
  }

  Status enqueue() {
    for (const Piece& piece : pieces_)
      if (piece.shared_tail >= 0)
        CORBEL_RETURN_IF_ERROR(backend().copy_kv_block(*stream_, cache_.state_->buffer, cache_.state_->layout,
                                                       piece.shared_tail, new_blocks(piece).front()));
    CORBEL_RETURN_IF_ERROR(backend().upload(*stream_, device_batch_, 0, staging_.data(), layout_.bytes));
    hal::Bindings<B> bindings;
    bindings.program = &model().program();
    bindings.weights = model().weights();
    bindings.arena_plan = &plan_;
    bindings.arena = &arena_;
    bindings.workspace = &workspace_;
    bindings.batch_layout = &layout_;
    bindings.batch = &device_batch_;
    bindings.kv_layout = &cache_.state_->layout;
    bindings.kv = &cache_.state_->buffer;
    CORBEL_RETURN_IF_ERROR(backend().run(*stream_, bindings));
    if (num_wanted_ == 0) return {};
    const hal::ArenaPlan::Slot& slot = plan_.slots[static_cast<std::size_t>(model().program().logits)];
    return backend().download(*stream_, arena_, slot.offset, host_logits_.data(),
                              std::uint64_t{num_wanted_} * model().spec().vocab * sizeof(float));
  }

  void commit() noexcept {
    for (Piece& piece : pieces_) {
      Sequence<B>& sequence = *piece.sequence;
      sequence.planned_ = planned_length(piece);
      if (piece.shared_tail >= 0) {
        sequence.blocks_.pop_back();
        pool().release({&piece.shared_tail, 1});
      }
      const std::span<const std::int32_t> added = new_blocks(piece);
      const auto first_id = ids_.begin() + static_cast<std::ptrdiff_t>(piece.first_row);
      sequence.blocks_.insert(sequence.blocks_.end(), added.begin(), added.end());
      sequence.tokens_.insert(sequence.tokens_.end(), first_id, first_id + static_cast<std::ptrdiff_t>(piece.num_rows));
      sequence.roles_.insert(sequence.roles_.end(), piece.num_rows, piece.role);
    }
  }
  cache::BlockPool& pool() noexcept { return cache_.state_->pool; }

  KVCache<B> cache_;
  BatchOptions options_;
  hal::BatchLayout layout_;
  hal::ArenaPlan plan_;
  typename B::Buffer arena_, workspace_, device_batch_;
  Allocation staging_, host_logits_;
  std::unique_ptr<typename B::Stream> stream_;
  std::vector<Piece> pieces_;
  std::vector<TokenId> ids_;                      // of all pieces, row by row
  std::vector<std::int32_t> new_blocks_;          // of all pieces
  std::vector<std::uint32_t> frequency_lengths_;  // of each slot: for how many tokens staging_ has its frequencies
  std::uint32_t num_wanted_ = 0;
  std::uint64_t num_runs_ = 0;
};

CORBEL_NAMESPACE_END
