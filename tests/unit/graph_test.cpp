// Passes: the same logits, and the count that each one lowers. Arena plans: no two live values share memory.
#include <corbel/graph/passes.hpp>
#include <corbel/models/build.hpp>

#include <algorithm>
#include <catch2/catch.hpp>

#include "support/golden.hpp"

using namespace corbel;
using namespace corbel_test;

namespace {

hal::Program textbook(const std::string& name) {
  const Context context;
  const auto checkpoint = Checkpoint::open(test_data("golden/") + name + "/model.gguf", context).value();
  const auto spec = models::read_model_spec(checkpoint).value();
  return models::build_program(checkpoint, spec).value();
}

std::size_t count(const hal::Program& program, hal::OpKind kind) {
  return static_cast<std::size_t>(
      std::count_if(program.ops.begin(), program.ops.end(), [&](const hal::Op& op) { return op.kind == kind; }));
}

/// Every op reads only what an earlier op made; ids are in range; views lie inside their parents.
void check_well_formed(const hal::Program& program) {
  std::vector<bool> made(program.values.size(), false);
  for (const hal::Op& op : program.ops) {
    for (hal::ValueId in : op.in)
      if (in != hal::kNone) REQUIRE(made.at(static_cast<std::size_t>(program.root(in).value)));
    if (op.out != hal::kNone) made.at(static_cast<std::size_t>(program.root(op.out).value)) = true;
    for (hal::WeightId id : {op.weight, op.bias})
      if (id != hal::kNone) REQUIRE_FALSE(program.weights.at(static_cast<std::size_t>(id)).parts.empty());
  }
  for (const hal::Value& value : program.values)
    if (value.parent != hal::kNone)
      REQUIRE(value.column + value.width <= program.values.at(static_cast<std::size_t>(value.parent)).width);
  REQUIRE(program.values.at(static_cast<std::size_t>(program.logits)).rows == hal::Rows::kWanted);
}

/// Rows at the head for a prompt of which one row is wanted.
std::uint32_t rows_at_head(const hal::Program& program, std::uint32_t rows) {
  for (std::size_t i = program.ops.size(); i-- > 0;)
    if (program.ops[i].kind == hal::OpKind::kLinear)
      return program.values[static_cast<std::size_t>(program.ops[i].in[0])].rows == hal::Rows::kAll ? rows : 1;
  return 0;
}

std::vector<float> logits_with(const std::string& name, const graph::PassOptions& passes, std::size_t length) {
  const Context context({.threads = 1});
  LoadOptions options;
  options.passes = passes;
  auto running = Running<RefBackend>::load(test_data("golden/") + name + "/model.gguf", context,
                                           {.max_tokens = 128, .type = KvType::kF32}, options);
  auto batch = Batch<RefBackend>::create(running.cache, {.max_rows = 64, .max_wanted = 64}).value();
  Sequence<RefBackend> sequence(running.cache);
  std::vector<TokenId> ids(length);
  for (std::size_t i = 0; i < length; ++i) ids[i] = static_cast<TokenId>(3 + (i * 37) % 300);
  return all_logits(batch, sequence, ids, 64);
}

constexpr graph::PassOptions kNoPasses = {false, false, false, false};

}  // namespace

TEST_CASE("passes keep programs well formed", "[graph]") {
  for (const char* name : {"llama-gqa", "qwen2-f16", "qwen3", "gemma3-text"}) {
    INFO(name);
    hal::Program program = textbook(name);
    check_well_formed(program);
    graph::fold_constants(program);
    check_well_formed(program);
    graph::merge_linears(program);
    check_well_formed(program);
    graph::drop_dead_rows(program);
    check_well_formed(program);
  }
}

TEST_CASE("constant folding removes the scales", "[graph]") {
  hal::Program program = textbook("gemma3-text");
  const std::size_t ops = program.ops.size();
  CHECK(count(program, hal::OpKind::kScale) == 1 + 6);  // the embedding, and q of each layer
  graph::fold_constants(program);
  CHECK(count(program, hal::OpKind::kScale) == 0);
  CHECK(program.ops.size() == ops - 7);
}

TEST_CASE("merging makes one linear of q, k, v and one of gate, up", "[graph]") {
  hal::Program program = textbook("qwen2-f16");
  const std::size_t layers = program.kv_layers.size();
  CHECK(count(program, hal::OpKind::kLinear) == 7 * layers + 1);
  graph::merge_linears(program);
  CHECK(count(program, hal::OpKind::kLinear) == 4 * layers + 1);
  const auto merged = std::find_if(program.ops.begin(), program.ops.end(),
                                   [](const hal::Op& op) { return op.kind == hal::OpKind::kLinear; });
  const hal::WeightSpec& weight = program.weights[static_cast<std::size_t>(merged->weight)];
  REQUIRE(weight.parts.size() == 3);
  CHECK(weight.parts[0].name == "blk.0.attn_q.weight");
  CHECK(weight.parts[2].name == "blk.0.attn_v.weight");
  CHECK(weight.rows() == program.values[static_cast<std::size_t>(merged->out)].width);
  CHECK(program.weights[static_cast<std::size_t>(merged->bias)].elements() == weight.rows());
}

TEST_CASE("dead rows are dropped before the last layer's output projection and the head", "[graph]") {
  hal::Program program = textbook("llama-gqa");
  CHECK(rows_at_head(program, 64) == 64);
  graph::drop_dead_rows(program);
  CHECK(rows_at_head(program, 64) == 1);
  CHECK(count(program, hal::OpKind::kSelectRows) == 2);  // the attention's output, and the residual
}

TEST_CASE("the arena plan shares memory between values that never meet", "[graph]") {
  for (const char* name : {"llama-gqa", "gemma3-text"}) {
    hal::Program program = textbook(name);
    graph::run_passes(program, {});
    const hal::ArenaPlan apart = graph::plan_arena(program, 64, 4, false);
    const hal::ArenaPlan shared = graph::plan_arena(program, 64, 4, true);
    INFO(name << ": " << shared.bytes << " of " << apart.bytes << " bytes");
    CHECK(shared.bytes * 3 < apart.bytes);
    // Replay: at each op, no live value's bytes overlap another's.
    struct Life {
      std::size_t first = SIZE_MAX, last = 0;
    };
    std::vector<Life> lives(program.values.size());
    for (std::size_t i = 0; i < program.ops.size(); ++i)
      for (hal::ValueId id : {program.ops[i].in[0], program.ops[i].in[1], program.ops[i].out})
        if (id != hal::kNone) {
          Life& life = lives[static_cast<std::size_t>(program.root(id).value)];
          life.first = std::min(life.first, i);
          life.last = std::max(life.last, i);
        }
    lives[static_cast<std::size_t>(program.root(program.logits).value)].last = program.ops.size();
    const auto bytes = [&](std::size_t id) {
      const hal::Value& value = program.values[id];
      return std::uint64_t{4} * value.width * (value.rows == hal::Rows::kAll ? 64 : 4);
    };
    for (std::size_t a = 0; a < lives.size(); ++a)
      for (std::size_t b = a + 1; b < lives.size(); ++b) {
        if (program.values[a].parent != hal::kNone || program.values[b].parent != hal::kNone) continue;
        if (lives[a].first > lives[b].last || lives[b].first > lives[a].last) continue;
        const std::uint64_t begin_a = shared.slots[a].offset, begin_b = shared.slots[b].offset;
        CHECK((begin_a + bytes(a) <= begin_b || begin_b + bytes(b) <= begin_a));
      }
  }
}

TEST_CASE("each pass on and off gives the same logits", "[graph]") {
  for (const char* name : {"llama-gqa", "qwen2-f16", "qwen3", "gemma3-text"}) {
    const std::vector<float> plain = logits_with(name, kNoPasses, 30);
    for (int pass = 0; pass < 5; ++pass) {
      graph::PassOptions passes = pass == 4 ? graph::PassOptions{} : kNoPasses;
      if (pass == 0) passes.fold_constants = true;
      if (pass == 1) passes.merge_linears = true;
      if (pass == 2) passes.drop_dead_rows = true;
      if (pass == 3) passes.reuse_memory = true;
      INFO(name << ", pass " << pass);
      CHECK(max_difference(logits_with(name, passes, 30), plain) <= 1e-5);
    }
  }
}

TEST_CASE("dump names shapes and source tensors", "[graph]") {
  hal::Program program = textbook("llama-gqa");
  CHECK(graph::dump(program).find("linear") != std::string::npos);
  CHECK(graph::dump(program).find("blk.0.attn_q.weight:F32 [64, 64]") != std::string::npos);
  graph::run_passes(program, {});
  CHECK(graph::dump(program).find(
            "blk.0.attn_q.weight:F32 + blk.0.attn_k.weight:F32 + blk.0.attn_v.weight:F32 [128, 64]") !=
        std::string::npos);
}
