// Passes: the same logits, and the count that each one lowers. Arena plans: no two live values share memory.
#include <corbel/graph/builder.hpp>
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

/// A matrix without data, for programs that are looked at and not run.
hal::WeightSpec matrix(const char* name, std::uint64_t rows, std::uint64_t cols, hal::WeightUse use = hal::kUseLinear) {
  hal::WeightPart part;
  part.name = name;
  part.rows = rows;
  part.cols = cols;
  hal::WeightSpec spec;
  spec.uses = use;
  spec.parts.push_back(part);
  return spec;
}

/// One layer of latent attention and a mixture of 8 experts beside a shared one.
hal::Program mixture() {
  graph::Builder b;
  const hal::NormSpec norm = {hal::NormKind::kRms, 32, 1e-5f};
  const hal::RouteSpec route = {8, 2};
  hal::ValueId x = b.embed(b.weight(matrix("embedding", 50, 32, hal::kUseEmbedding)), "embedding");
  x = b.embed_position(x, b.weight(matrix("positions", 64, 32, hal::kUseEmbedding)), 0, "positions");
  b.set_layer(0);
  hal::ValueId n = b.norm(x, hal::kNone, hal::kNone, norm, "norm");
  hal::ValueId q = b.linear(n, b.weight(matrix("q", 4 * 8, 32)), hal::kNone, "q");
  const hal::ValueId k = b.linear(n, b.weight(matrix("k", 24, 32)), hal::kNone, "k");
  q = b.grouped_linear(q, b.weight(matrix("k_up", 4 * 24, 8)), 4, "q_latent");
  q = b.position_scale(q, 0.1f, 16, "q_scaled");
  b.kv_layer({1, 24, 16, true});
  b.kv_append(k);
  hal::ValueId mixed = b.attention(q, {4, 1, 24, 1, 0, 0, 16, true}, hal::kNone, hal::kNone, "attention");
  mixed = b.grouped_linear(mixed, b.weight(matrix("v_up", 4 * 8, 16)), 4, "values");
  x = b.add(x, b.linear(mixed, b.weight(matrix("o", 32, 32)), hal::kNone, "o"), "attn_residual");
  n = b.norm(x, hal::kNone, hal::kNone, norm, "ffn_norm");
  const hal::ValueId routed =
      b.route(b.linear(n, b.weight(matrix("router", 8, 32)), hal::kNone, "scores"), route, hal::kNone, "routed");
  const hal::ValueId gate = b.expert_linear(n, routed, route, b.weight(matrix("gate", 8 * 48, 32)), hal::kNone, "gate");
  const hal::ValueId up = b.expert_linear(n, routed, route, b.weight(matrix("up", 8 * 48, 32)), hal::kNone, "up");
  const hal::ValueId act = b.activation(hal::ActivationKind::kSilu, gate, up, "gated");
  const hal::ValueId down =
      b.expert_linear(act, routed, route, b.weight(matrix("down", 8 * 32, 48)), hal::kNone, "down");
  const hal::ValueId shared = b.linear(n, b.weight(matrix("shared", 32, 32)), hal::kNone, "shared");
  x = b.add(x, b.add(b.expert_sum(down, routed, route, "experts"), shared, "ffn"), "ffn_residual");
  b.set_layer(hal::kNone);
  return b.finish(b.select_rows(b.linear(x, b.weight(matrix("head", 50, 32)), hal::kNone, "head"), "logits"));
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

TEST_CASE("passes on latent attention and a mixture of experts", "[graph]") {
  hal::Program program = mixture();
  check_well_formed(program);
  graph::fold_constants(program);
  check_well_formed(program);
  CHECK(count(program, hal::OpKind::kLinear) == 6);
  graph::merge_linears(program);
  check_well_formed(program);
  CHECK(count(program, hal::OpKind::kLinear) == 4);  // q and k; the router and the shared expert
  CHECK(count(program, hal::OpKind::kExpertLinear) == 3);
  CHECK(count(program, hal::OpKind::kGroupedLinear) == 2);
  graph::drop_dead_rows(program);
  check_well_formed(program);
  CHECK(count(program, hal::OpKind::kSelectRows) == 2);  // the attention's output, and the residual
  for (const hal::Op& op : program.ops) {
    if (op.out == hal::kNone) continue;
    INFO(hal::op_name(op.kind));
    const bool wanted = program.values[static_cast<std::size_t>(op.out)].rows == hal::Rows::kWanted;
    // What depends on a row's position works on the rows that have one.
    if (op.kind == hal::OpKind::kEmbedPosition || op.kind == hal::OpKind::kPositionScale) CHECK_FALSE(wanted);
    if (op.kind == hal::OpKind::kRoute || op.kind == hal::OpKind::kExpertLinear || op.kind == hal::OpKind::kExpertSum)
      CHECK(wanted);
    if (op.in[1] != hal::kNone)
      CHECK(program.values[static_cast<std::size_t>(op.in[1])].rows ==
            program.values[static_cast<std::size_t>(op.out)].rows);
  }
  const std::string text = graph::dump(program);
  for (const char* part : {"expert_linear", "8 experts", "grouped_linear", "values in keys", "position_scale"}) {
    INFO(part);
    CHECK(text.find(part) != std::string::npos);
  }
}

TEST_CASE("the arena plan shares memory between values that never meet", "[graph]") {
  for (const char* name : {"llama-gqa", "gemma3-text", "mixture"}) {
    hal::Program program = std::string(name) == "mixture" ? mixture() : textbook(name);
    graph::run_passes(program, {});
    const hal::ArenaPlan apart = graph::plan_arena(program, 64, 4, false);
    const hal::ArenaPlan shared = graph::plan_arena(program, 64, 4, true);
    INFO(name << ": " << shared.bytes << " of " << apart.bytes << " bytes");
    CHECK(shared.bytes * (std::string(name) == "mixture" ? 1 : 3) < apart.bytes);  // one layer alone reuses little
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
