// corbel logits: the logits of every position, or greedy ids: for comparing with a reference.
#include <unistd.h>

#include "common.hpp"

namespace tool {
namespace {

struct Options {
  RunOptions run;
  std::string model;
  std::string ids;
  std::string out;
  std::string role = "prompt";
  std::uint32_t greedy = 0;
  std::uint32_t chunk = 0;
};

std::vector<corbel::TokenId> read_ids(const std::string& path) {
  const corbel::json::Value file = parse_json(read_file(path), path);
  const corbel::json::Value* member = file.find("ids");
  std::vector<corbel::TokenId> ids = ids_from_json(member != nullptr ? *member : file, path);
  if (ids.empty()) throw WorkError(path + ": holds no token ids");
  return ids;
}

template <class B>
int run_on(const corbel::Model<B>& model, const Options& options, std::span<const corbel::TokenId> ids) {
  const bool all = !options.out.empty() || options.greedy == 0;
  const std::uint64_t positions = std::uint64_t{ids.size()} + options.greedy;
  if (positions > model.spec().context_length)
    throw WorkError(options.ids + ": " + std::to_string(ids.size()) + " ids and " + std::to_string(options.greedy) +
                    " greedy ones do not fit in the model's context of " + std::to_string(model.spec().context_length));
  const std::uint32_t wanted = all ? rows_of_logits(model.spec().vocab) : 1;
  const std::uint32_t chunk = options.chunk != 0 ? options.chunk : all ? wanted : 512;

  const auto cache = corbel::KVCache<B>::create(
                         model, {.max_tokens = static_cast<std::uint32_t>(positions), .type = kv_type(options.run)})
                         .value();
  auto batch =
      corbel::Batch<B>::create(cache, {.max_rows = chunk, .max_wanted = all ? chunk : 1, .max_sequences = 1}).value();
  corbel::Sequence<B> sequence(cache);
  const corbel::Role role = role_from_name(options.role);
  check(sequence.plan_length(static_cast<std::uint32_t>(ids.size())));

  corbel::TokenId next = 0;
  if (all) {
    OutFile out(options.out);
    ProgressBar bar("logits");
    forward_all(batch, sequence, ids, chunk, role, [&](std::size_t index, std::span<const float> logits) {
      out.write(logits);
      bar.update(index + 1, ids.size());
      next = argmax(logits);
    });
    out.close();
  } else {
    next = argmax(forward_last(batch, sequence, ids, chunk, role));
  }
  if (options.greedy == 0) return 0;

  // Where the rotary embedding depends on the length, each id is that of one pass over all before it.
  const bool anew = corbel::models::num_length_frequencies(model.spec()) != 0;
  std::vector<corbel::TokenId> greedy = {next}, so_far(ids.begin(), ids.end());
  while (greedy.size() < options.greedy) {
    so_far.push_back(greedy.back());
    if (anew) {
      sequence.clear();
      check(sequence.plan_length(static_cast<std::uint32_t>(so_far.size())));
    }
    const std::span<const corbel::TokenId> fed = std::span(so_far).subspan(anew ? 0 : so_far.size() - 1);
    greedy.push_back(argmax(forward_last(batch, sequence, fed, chunk, anew ? role : corbel::Role::kGenerated)));
  }
  print(ids_to_json(greedy) + "\n");
  return 0;
}

void run(const Options& options) {
  if (options.out.empty() && options.greedy == 0 && isatty(STDOUT_FILENO) == 1)
    throw UsageError("logits: give --out FILE or --greedy N, or send stdout to a file");
  refuse_input_as_output(options.out, options.model, options.ids);
  const std::vector<corbel::TokenId> ids = read_ids(options.ids);
  const corbel::Context context = make_context(options.run);
  load_model(options.model, options.run, context).visit([&](const auto& model) { return run_on(model, options, ids); });
}

}  // namespace

void add_logits(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = add_verb(app, action, "logits", "Logits of every position, or greedy ids, for given token ids",
                            options->run, [options] { run(*options); });
  verb->add_option("MODEL", options->model, "A GGUF or safetensors file, or a Hugging Face folder")->required();
  add_activations(*verb, options->run);
  verb->add_option("--ids", options->ids, "A JSON file with a list of token ids")->required();
  verb->add_option("--out", options->out, "Logits go here: little-endian float32 [tokens, vocab] (default: stdout)");
  verb->add_option("--greedy", options->greedy, "Print the N likeliest next ids, one after the other, as a JSON list")
      ->check(number_in(1, 1 << 24));
  verb->add_option("--chunk", options->chunk, "Feed the ids in pieces of N; changes no bit")
      ->check(number_in(1, 1 << 20));
  add_role(*verb, options->role);
}

}  // namespace tool
