// KVCache: a pool of blocks for keys and values. Sequence: the tokens of one conversation and the blocks that hold
// them.
//
//   auto cache = corbel::KVCache<>::create(model, {.max_tokens = 4096}).value();
//   corbel::Sequence<> sequence(cache);
//   auto branch = sequence.fork();              // shares all blocks; what is written later is copied first
#pragma once

#include <corbel/cache/block_pool.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/hal/kv.hpp>
#include <corbel/model.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN

using hal::KvType;
using hal::Role;

struct KVCacheOptions {
  std::uint32_t max_tokens = 4096;  ///< over all sequences; rounded up to whole blocks
  std::uint32_t block_tokens = 32;  ///< 16, 32 or 64; results do not depend on it
  KvType type = KvType::kF16;       ///< element type of keys and values
};

template <hal::Backend B>
class Sequence;
template <hal::Backend B>
class Batch;

/// Cheap to copy (shared pool), thread-safe. The memory lives as long as the cache or any sequence of it.
template <hal::Backend B = DefaultBackend>
class KVCache {
 public:
  /// kInvalidArgument (max_tokens 0 or above 2^26, a block size that is not 16, 32 or 64), kOutOfMemory.
  static Result<KVCache> create(const Model<B>& model, const KVCacheOptions& options = {}) {
    return detail::guard([&]() -> Result<KVCache> {
      if (options.block_tokens != 16 && options.block_tokens != 32 && options.block_tokens != 64)
        return Status(Errc::kInvalidArgument,
                      "block_tokens: " + std::to_string(options.block_tokens) + " is not 16, 32 or 64");
      if (options.max_tokens == 0 || options.max_tokens > (1u << 26))
        return Status(Errc::kInvalidArgument,
                      "max_tokens: " + std::to_string(options.max_tokens) + " is not in 1..67108864");
      const std::uint32_t num_blocks = (options.max_tokens + options.block_tokens - 1) / options.block_tokens;
      const hal::KvLayout layout =
          model.backend().kv_layout({model.program().kv_layers, options.block_tokens, options.type});
      CORBEL_ASSIGN_OR_RETURN(typename B::Buffer buffer,
                              model.backend().allocate(num_blocks * layout.block_bytes, "the KV cache"));
      return KVCache(std::make_shared<State>(model, options, layout, std::move(buffer), num_blocks));
    });
  }

  const Model<B>& model() const noexcept { return state_->model; }
  const KVCacheOptions& options() const noexcept { return state_->options; }
  std::uint32_t block_tokens() const noexcept { return state_->options.block_tokens; }
  std::uint32_t num_blocks() const noexcept { return state_->pool.num_blocks(); }
  std::uint32_t num_free_blocks() const noexcept { return state_->pool.num_free(); }
  /// Tokens that fit in all blocks together.
  std::uint64_t capacity() const noexcept { return std::uint64_t{num_blocks()} * block_tokens(); }
  std::uint64_t bytes() const noexcept { return state_->buffer.bytes(); }

 private:
  friend class Sequence<B>;
  friend class Batch<B>;
  struct State {
    State(const Model<B>& model_in, const KVCacheOptions& options_in, hal::KvLayout layout_in,
          typename B::Buffer buffer_in, std::uint32_t num_blocks)
        : model(model_in),
          options(options_in),
          layout(std::move(layout_in)),
          buffer(std::move(buffer_in)),
          pool(num_blocks) {}
    Model<B> model;
    KVCacheOptions options;
    hal::KvLayout layout;
    typename B::Buffer buffer;
    cache::BlockPool pool;
  };
  explicit KVCache(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

/// Tokens whose keys and values are in the cache, in order. Movable; copies are named: fork(). Belongs to one thread at
/// a time; two sequences of one cache may be used by two threads at once.
template <hal::Backend B = DefaultBackend>
class Sequence {
 public:
  /// An empty sequence; takes no block yet.
  explicit Sequence(const KVCache<B>& cache) noexcept : cache_(cache) {}
  Sequence(Sequence&& other) noexcept
      : cache_(other.cache_),
        tokens_(std::move(other.tokens_)),
        roles_(std::move(other.roles_)),
        blocks_(std::move(other.blocks_)),
        planned_(other.planned_) {
    other.clear_lists();
  }
  Sequence& operator=(Sequence&& other) noexcept {
    if (this != &other) {
      clear();
      cache_ = other.cache_;
      tokens_ = std::move(other.tokens_);
      roles_ = std::move(other.roles_);
      blocks_ = std::move(other.blocks_);
      planned_ = other.planned_;
      other.clear_lists();
    }
    return *this;
  }
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;
  ~Sequence() { clear(); }

  const KVCache<B>& cache() const noexcept { return cache_; }
  std::span<const TokenId> tokens() const noexcept { return tokens_; }
  /// What each token was when it was computed.
  std::span<const Role> roles() const noexcept { return roles_; }
  std::size_t size() const noexcept { return tokens_.size(); }
  bool empty() const noexcept { return tokens_.empty(); }
  /// Blocks held; shared ones count in full.
  std::size_t num_blocks() const noexcept { return blocks_.size(); }

  /// Says for how many tokens the sequence is meant. Matters only to models whose rotary embedding depends on the
  /// length (rope scaling "longrope" and "dynamic", docs/adr/0010-rope-by-planned-length.md), and there decides its
  /// results: a prompt that is fed in pieces needs the same number as one fed at once. Not told, it is the number of
  /// tokens of the first piece; generate() and Conversation tell it. Holds until the sequence is empty again.
  /// kInvalidArgument where tokens are in the cache already, or for 0.
  Status plan_length(std::uint32_t tokens) {
    if (!tokens_.empty() || tokens == 0)
      return Status(Errc::kInvalidArgument, "plan_length: " + std::to_string(tokens) + " tokens, the sequence has " +
                                                std::to_string(tokens_.size()));
    planned_ = tokens;
    return {};
  }
  /// Makes room in the sequence's own lists for `tokens` tokens in all, so that adding them allocates nothing.
  /// kOutOfMemory. Takes no block of the cache.
  Status reserve(std::size_t tokens) {
    return detail::guard([&] {
      tokens_.reserve(tokens);
      roles_.reserve(tokens);
      blocks_.reserve((tokens + cache_.block_tokens() - 1) / cache_.block_tokens());
      return Status();
    });
  }

  /// 0: not known yet.
  std::uint32_t planned_length() const noexcept { return planned_; }

  /// A second sequence with the same tokens, sharing all blocks. Costs no cache memory until one of the two grows.
  Result<Sequence> fork() const {
    return detail::guard([&]() -> Result<Sequence> {
      Sequence copy(cache_);
      copy.tokens_ = tokens_;
      copy.roles_ = roles_;
      copy.blocks_ = blocks_;
      copy.planned_ = planned_;
      cache_.state_->pool.share(blocks_);
      return copy;
    });
  }
  /// Forgets the tokens from index `size` on; kInvalidArgument where the sequence is shorter.
  Status truncate(std::size_t size) {
    if (size > tokens_.size())
      return Status(Errc::kInvalidArgument, "truncate: " + std::to_string(size) + " tokens asked, the sequence has " +
                                                std::to_string(tokens_.size()));
    const std::size_t keep = (size + cache_.block_tokens() - 1) / cache_.block_tokens();
    cache_.state_->pool.release(std::span<const std::int32_t>(blocks_).subspan(keep));
    blocks_.resize(keep);
    tokens_.resize(size);
    roles_.resize(size);
    if (size == 0) planned_ = 0;
    return {};
  }
  /// Forgets everything and gives all blocks back.
  void clear() noexcept {
    if (!blocks_.empty()) cache_.state_->pool.release(blocks_);
    clear_lists();
  }

 private:
  friend class Batch<B>;
  void clear_lists() noexcept {
    tokens_.clear();
    roles_.clear();
    blocks_.clear();
    planned_ = 0;
  }

  KVCache<B> cache_;
  std::vector<TokenId> tokens_;
  std::vector<Role> roles_;
  std::vector<std::int32_t> blocks_;
  std::uint32_t planned_ = 0;  // tokens for which the sequence is meant; 0: not known yet
};

CORBEL_NAMESPACE_END
