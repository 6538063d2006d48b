// Model: the weights of a checkpoint, prepared once for a backend, with its tokenizer and chat template.
//
//   corbel::Context context;
//   auto model = corbel::Model<>::load("smollm2.gguf", context).value();
//   std::vector<corbel::TokenId> ids = model.tokenizer().encode("Hello").value();
#pragma once

#include <corbel/backends.hpp>
#include <corbel/chat.hpp>
#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/checkpoint/generation_defaults.hpp>
#include <corbel/config.hpp>
#include <corbel/context.hpp>
#include <corbel/detail/fp_environment.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/error.hpp>
#include <corbel/graph/passes.hpp>
#include <corbel/models/build.hpp>
#include <corbel/models/model_spec.hpp>
#include <corbel/models/packed_cache.hpp>
#include <corbel/models/tuning_profile.hpp>
#include <corbel/tokenizer.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN

struct LoadOptions {
  /// Called on the loading thread with bytes done and in total; false stops the load (Errc::kCancelled). A
  /// std::function that throws passes its exception to the caller of load.
  ProgressCallback progress = nullptr;
  /// How the file is opened (by load(path) only).
  OpenOptions open = {};
  /// Inputs of linears whose quantization scheme rounds them: kept in float32, or rounded as the scheme says.
  models::ActivationRounding activations = models::ActivationRounding::kNever;
  /// Which passes run; for tests and for looking at programs.
  graph::PassOptions passes = {};
  /// A folder where prepared weights are kept between runs, made where it is missing; empty: none. A first load writes
  /// them there, a later one of the same checkpoint maps them instead of packing it. Whatever is wrong with such a
  /// file, or keeps one from being written, is a line in the log and no error. Put nothing else there, and let nobody
  /// write there who may not choose what a model says. docs/how-to/load-faster.md.
  std::string packed_cache = {};
  models::PackedUse packed_use = models::PackedUse::kMap;
};

namespace detail {

/// Bytes of the tensors that a program reads, each part once.
inline std::uint64_t source_bytes(const hal::Program& program) {
  std::uint64_t sum = 0;
  for (const hal::WeightSpec& spec : program.weights)
    for (const hal::WeightPart& part : spec.parts) sum += part.rows * part.row_bytes();
  return sum;
}

/// Whether a checkpoint has a tokenizer at all; a GGUF file must, or say that it has none.
inline bool has_tokenizer(const Checkpoint& checkpoint) {
  if (checkpoint.format() == CheckpointFormat::kGguf) {
    if (checkpoint.metadata().find("tokenizer.huggingface.json") != nullptr) return true;
    const Result<std::string_view> kind = checkpoint.metadata().get_string("tokenizer.ggml.model");
    return !kind.ok() || (*kind != "no_vocab" && *kind != "none");
  }
  for (const char* name : {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"})
    if (checkpoint.has_document(name)) return true;
  return false;
}

/// A line for each thing in the checkpoint that is left unread on purpose and may not be meant so.
inline std::vector<std::string> load_notes(const Checkpoint& checkpoint, const models::ModelSpec& spec,
                                           const GenerationDefaults& generation) {
  std::vector<std::string> notes = generation.ignored;
  if (std::string unused = models::describe_unused_layers(checkpoint, spec); !unused.empty())
    notes.push_back(std::move(unused));
  for (std::string& note : notes) note = printable(checkpoint.name(), 200) + ": " + note;
  return notes;
}

/// Turns reads of weight bytes into calls of the progress callback, which only ever runs on the loading thread.
class LoadProgress {
 public:
  explicit LoadProgress(ProgressCallback callback)
      : callback_(std::move(callback)), thread_(std::this_thread::get_id()) {}
  void set_total(std::uint64_t total) noexcept { total_ = total; }
  /// True: go on.
  bool advance(std::uint64_t bytes) {
    const std::uint64_t done = done_.fetch_add(bytes) + bytes;
    if (std::this_thread::get_id() == thread_ && !stopped_.load() &&
        !callback_(LoadPhase::kPrepare, std::min(done, total_), total_))
      stopped_ = true;
    return !stopped_.load();
  }

 private:
  ProgressCallback callback_;
  std::thread::id thread_;
  std::uint64_t total_ = 0;
  std::atomic<std::uint64_t> done_{0};
  std::atomic<bool> stopped_{false};
};

}  // namespace detail

/// Immutable, cheap to copy (shared state), thread-safe. Keeps its Context's state alive. Any number of threads may run
/// it at the same time, each with its own Batch and sequences.
template <hal::Backend B = DefaultBackend>
class Model {
 public:
  /// Loads what Checkpoint::open opens: a GGUF file, a Hugging Face folder. Errors: those of Checkpoint::open, of
  /// models::read_model_spec, read_generation_defaults, missing_tensor, shape_mismatch, bad_value (a NaN or infinite
  /// scale), vocab_invalid, unsupported, out_of_memory, cancelled; messages start with the file's name.
  static Result<Model> load(const std::string& path, const Context& context, const LoadOptions& options = {}) {
    CORBEL_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(path, context, options.open));
    return load(checkpoint, context, options);
  }
  /// Loads from an open checkpoint, which is not needed afterwards.
  static Result<Model> load(const Checkpoint& checkpoint, const Context& context, const LoadOptions& options = {}) {
    const detail::ScopedFpEnvironment fp;
    Result<Model> model = detail::guard([&] { return load_checkpoint(checkpoint, context, options); });
    if (!model.ok()) return model.status().with_place(detail::printable(checkpoint.name(), 200));
    return model;
  }

  const Context& context() const noexcept { return state_->context; }
  const B& backend() const noexcept { return state_->backend; }
  const models::ModelSpec& spec() const noexcept { return state_->spec; }
  const Tokenizer& tokenizer() const noexcept { return state_->tokenizer; }
  /// The checkpoint's chat template; the error says why there is none: missing_key, template_error, limit_exceeded.
  const Result<ChatTemplate>& chat_template() const noexcept { return state_->chat; }
  /// How the checkpoint's authors sample, where it says so.
  const GenerationDefaults& generation_defaults() const noexcept { return state_->generation; }
  /// What the backend runs: after the passes.
  const hal::Program& program() const noexcept { return state_->program; }
  std::span<const typename B::Weight> weights() const noexcept { return state_->weights; }
  const graph::PassOptions& passes() const noexcept { return state_->passes; }
  /// Bytes of prepared weights.
  std::uint64_t weight_bytes() const noexcept {
    std::uint64_t sum = 0;
    for (const typename B::Weight& weight : state_->weights) sum += weight.bytes();
    return sum;
  }

 private:
  struct State {
    Context context;
    B backend;
    models::ModelSpec spec;
    Tokenizer tokenizer;
    Result<ChatTemplate> chat;
    GenerationDefaults generation;
    hal::Program program;
    graph::PassOptions passes;
    std::vector<typename B::Weight> weights;
  };
  explicit Model(std::shared_ptr<const State> state) noexcept : state_(std::move(state)) {}

  static Result<Model> load_checkpoint(const Checkpoint& checkpoint, const Context& context,
                                       const LoadOptions& options) {
    CORBEL_ASSIGN_OR_RETURN(models::ModelSpec spec, models::read_model_spec(checkpoint));
    CORBEL_ASSIGN_OR_RETURN(GenerationDefaults generation, read_generation_defaults(checkpoint));
    for (const std::string& note : detail::load_notes(checkpoint, spec, generation)) {
      context.log(LogLevel::kWarning, note);
    }
    Tokenizer tokenizer;  // stays empty, and says so when used, for a folder without the files of one
    if (detail::has_tokenizer(checkpoint)) {
      CORBEL_ASSIGN_OR_RETURN(tokenizer, Tokenizer::from_checkpoint(checkpoint));
    }
    CORBEL_ASSIGN_OR_RETURN(B backend, B::create(context));

    std::shared_ptr<detail::LoadProgress> progress;
    std::shared_ptr<const models::ReadObserver> observer;
    if (options.progress) {
      progress = std::make_shared<detail::LoadProgress>(options.progress);
      observer = std::make_shared<const models::ReadObserver>(
          [progress](std::uint64_t bytes) { return progress->advance(bytes); });
    }
    CORBEL_ASSIGN_OR_RETURN(hal::Program program,
                            models::build_program(checkpoint, spec, observer, options.activations));
    graph::run_passes(program, options.passes);
    for (const hal::Op& op : program.ops)
      if (!backend.supports(op, program))
        return Status(Errc::kUnsupported,
                      std::string("the backend ") + B::kName + " cannot run the op " + hal::op_name(op.kind));
    if (progress) {
      progress->set_total(detail::source_bytes(program));
      if (!progress->advance(0)) return Status(Errc::kCancelled, "loading was stopped by the progress callback");
    }
    CORBEL_ASSIGN_OR_RETURN(std::vector<typename B::Weight> weights,
                            prepare_weights(backend, program, checkpoint, context, options, progress.get()));
    tune(backend, weights, context, options);
    Result<ChatTemplate> chat = ChatTemplate::from_checkpoint(checkpoint, tokenizer);
    auto state = std::make_shared<State>(State{context, std::move(backend), std::move(spec), std::move(tokenizer),
                                               std::move(chat), std::move(generation), std::move(program),
                                               options.passes, std::move(weights)});
    return Model(std::move(state));
  }

  /// Lets the backend measure what is fast, unless that is known from before.
  static void tune(const B& backend, std::span<const typename B::Weight> weights, const Context& context,
                   const LoadOptions& options) {
    if constexpr (requires { backend.tune(weights); }) {
      std::string identity;
      if constexpr (requires { backend.tuning_identity(); }) {
        const bool wanted = context.options().tuning.measure && context.measured() == 0;
        if (wanted && !options.packed_cache.empty()) identity = backend.tuning_identity();
      }
      if (identity.empty()) return backend.tune(weights);
      if (const std::uint64_t word = models::read_tuning_profile(options.packed_cache, identity); word != 0)
        return context.set_measured(word);
      backend.tune(weights);
      if (context.measured() == 0) return;
      const Status written = models::write_tuning_profile(options.packed_cache, identity, context.measured());
      if (!written.ok())
        context.log(LogLevel::kWarning, "what was measured is not kept: " + std::string(written.message()));
    }
  }

  /// Sources are dropped as weights are prepared.
  static Result<std::vector<typename B::Weight>> prepare_weights(const B& backend, hal::Program& program,
                                                                 const Checkpoint& checkpoint, const Context& context,
                                                                 const LoadOptions& options,
                                                                 detail::LoadProgress* progress) {
    models::PackedCache cache;
    models::PackedCache::Proceed proceed;
    if (progress != nullptr) proceed = [progress] { return progress->advance(0); };
    if constexpr (hal::KeepsPacked<B>) {
      if (!options.packed_cache.empty()) {
        models::PackedIdentity identity = {
            B::kName, backend.packed_layout(program.weights), static_cast<std::uint64_t>(options.activations), {}};
        for (const hal::WeightSpec& spec : program.weights)
          identity.bytes.push_back((spec.uses & hal::kUseVector) != 0 ? 0 : backend.weight_bytes(spec));
        CORBEL_ASSIGN_OR_RETURN(cache, models::PackedCache::open(options.packed_cache, options.packed_use, checkpoint,
                                                                 program, std::move(identity), context, proceed));
      }
    } else if (!options.packed_cache.empty()) {
      context.log(LogLevel::kInfo, std::string("packed cache: the backend ") + B::kName + " keeps no packed weights");
    }
    std::vector<typename B::Weight> weights;
    weights.reserve(program.weights.size());
    for (hal::WeightSpec& spec : program.weights) {
      std::optional<typename B::Weight> weight;
      if constexpr (hal::KeepsPacked<B>) {
        const std::span<const std::byte> bytes = cache.find(weights.size());
        if (!bytes.empty()) {
          if (Result<typename B::Weight> adopted = backend.adopt(spec, bytes, cache.keep()); adopted.ok())
            weight = std::move(*adopted);
          std::uint64_t stored = 0;
          for (const hal::WeightPart& part : spec.parts) stored += part.rows * part.row_bytes();
          if (progress != nullptr && weight && !progress->advance(stored))
            return Status(Errc::kCancelled, "loading was stopped by the progress callback");
        }
      }
      if (!weight) {
        CORBEL_ASSIGN_OR_RETURN(weight, backend.prepare(spec));
      }
      weights.push_back(std::move(*weight));
      for (hal::WeightPart& part : spec.parts) part.source.reset();
    }
    if constexpr (hal::KeepsPacked<B>) {
      CORBEL_RETURN_IF_ERROR(cache.store([&](std::size_t i) { return backend.packed_bytes(weights[i]); }, proceed));
    }
    return weights;
  }

  std::shared_ptr<const State> state_;
};

CORBEL_NAMESPACE_END
