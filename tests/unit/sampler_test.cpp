// Sampler against a plain double-precision oracle that sorts everything, and by chi-square.
#include <corbel/sampler.hpp>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/alloc_counter.hpp"

namespace {

using corbel::Errc;
using corbel::Sampler;
using corbel::SamplerOptions;
using corbel::TokenId;
using corbel::TokenProbability;
namespace sampling = corbel::sampling;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct OracleResult {
  std::map<TokenId, double> probabilities;
  bool close_call = false;  // a cut whose sum is so near its limit that rounding decides
};

using Entry = std::pair<TokenId, double>;  // id and logit

std::map<TokenId, double> softmax(const std::vector<Entry>& entries) {
  double top = -INFINITY;
  for (const Entry& e : entries) top = std::max(top, e.second);
  std::map<TokenId, double> out;
  double sum = 0;
  for (const Entry& e : entries) {
    const double w = e.second == top ? 1.0 : std::exp(e.second - top);
    out[e.first] = w;
    sum += w;
  }
  for (auto& [id, p] : out) p /= sum;
  return out;
}

// Keeps the head of `entries`, which are sorted, up to the mass.
void keep_mass(std::vector<Entry>& entries, double mass, bool& close_call) {
  const std::map<TokenId, double> p = softmax(entries);
  double sum = 0;
  std::size_t kept = 0;
  while (kept < entries.size()) {
    sum += p.at(entries[kept++].first);
    close_call = close_call || std::fabs(sum - mass) < 1e-11;
    if (sum >= mass) break;
  }
  entries.resize(kept);
}

bool more_likely(const Entry& a, const Entry& b) {
  return a.second != b.second ? a.second > b.second : a.first < b.first;
}

OracleResult oracle(const std::vector<float>& logits, const SamplerOptions& options, const std::vector<TokenId>& seen) {
  OracleResult result;
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < logits.size(); ++i) entries.emplace_back(static_cast<TokenId>(i), double{logits[i]});
  for (const corbel::TokenBias& bias : options.logit_bias)
    entries[static_cast<std::size_t>(bias.id)].second += double{bias.bias};
  std::map<TokenId, int> counts;
  const std::size_t window =
      options.penalty_window == 0 ? seen.size() : std::min<std::size_t>(seen.size(), options.penalty_window);
  for (std::size_t i = seen.size() - window; i < seen.size(); ++i) ++counts[seen[i]];
  for (const auto& [id, count] : counts) {
    double& logit = entries[static_cast<std::size_t>(id)].second;
    logit = logit > 0 ? logit / double{options.repetition_penalty} : logit * double{options.repetition_penalty};
    logit -= count * double{options.frequency_penalty};
    logit -= double{options.presence_penalty};
  }
  std::stable_sort(entries.begin(), entries.end(), more_likely);
  if (options.temperature == 0.0f) {
    result.probabilities[entries[0].first] = 1.0;
    return result;
  }
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < entries.size())
    entries.resize(static_cast<std::size_t>(options.top_k));
  if (options.typical_p < 1.0f) {
    const std::map<TokenId, double> p = softmax(entries);
    double entropy = 0;
    for (const auto& [id, q] : p) entropy -= q > 0 ? q * std::log(q) : 0.0;
    const auto distance = [&](const Entry& e) { return std::fabs(-std::log(p.at(e.first)) - entropy); };
    std::vector<Entry> typical = entries;
    std::sort(typical.begin(), typical.end(), [](const Entry& a, const Entry& b) { return a.first < b.first; });
    std::stable_sort(typical.begin(), typical.end(),
                     [&](const Entry& a, const Entry& b) { return distance(a) < distance(b); });
    for (std::size_t i = 1; i < typical.size(); ++i) {  // equal distances of different logits are decided by rounding
      const double gap = distance(typical[i]) - distance(typical[i - 1]);
      if (typical[i].second != typical[i - 1].second && gap < 1e-11) result.close_call = true;
    }
    // Equal logits have equal distances, up to the oracle's own rounding: lowest id first.
    keep_mass(typical, double{options.typical_p}, result.close_call);
    // keep_mass takes shares of what it is given, which is the whole distribution here.
    entries = typical;
    std::stable_sort(entries.begin(), entries.end(), more_likely);
  }
  if (options.top_p < 1.0f) keep_mass(entries, double{options.top_p}, result.close_call);
  if (options.min_p > 0.0f) {
    const std::map<TokenId, double> p = softmax(entries);
    const double limit = double{options.min_p} * p.at(entries[0].first);
    std::vector<Entry> kept;
    for (const Entry& e : entries) {
      const double q = p.at(e.first);
      result.close_call = result.close_call || (q != p.at(entries[0].first) && std::fabs(q - limit) < 1e-12 * limit);
      if (q >= limit) kept.push_back(e);
    }
    entries = kept;
  }
  for (Entry& e : entries) e.second /= double{options.temperature};
  for (const auto& [id, p] : softmax(entries))
    if (p > 0) result.probabilities[id] = p;
  return result;
}

std::vector<float> random_logits(std::mt19937& rng, std::size_t vocab) {
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = normal(rng);
  switch (rng() % 8) {
    case 0:  // ties
      for (float& logit : logits) logit = std::round(logit);
      break;
    case 1:  // all equal
      std::fill(logits.begin(), logits.end(), -0.0f);
      logits[rng() % vocab] = 0.0f;
      break;
    case 2:  // most are impossible
      for (float& logit : logits) logit = rng() % 4 == 0 ? logit : -kInf;
      logits[rng() % vocab] = 1.0f;
      break;
    case 3:  // some are certain
      logits[rng() % vocab] = kInf;
      logits[rng() % vocab] = kInf;
      break;
    case 4:  // one token left
      std::fill(logits.begin(), logits.end(), -kInf);
      logits[rng() % vocab] = normal(rng);
      break;
    case 5:  // huge
      for (float& logit : logits) logit *= 1e30f;
      break;
    default:
      break;
  }
  return logits;
}

float unit(std::mt19937& rng) { return static_cast<float>(rng() % 1001) / 1000.0f; }

SamplerOptions random_options(std::mt19937& rng, std::size_t vocab) {
  SamplerOptions options;
  const auto coin = [&] { return rng() % 2 == 0; };
  if (coin()) options.top_k = static_cast<std::int32_t>(rng() % (vocab + 5));
  if (coin()) options.top_p = unit(rng);
  if (coin()) options.min_p = unit(rng) * 0.5f;
  if (rng() % 4 == 0) options.typical_p = unit(rng);
  if (coin()) options.temperature = rng() % 5 == 0 ? 0.0f : 0.1f + 2.0f * unit(rng);
  if (coin()) options.repetition_penalty = 0.5f + unit(rng);
  if (coin()) options.frequency_penalty = unit(rng) - 0.5f;
  if (coin()) options.presence_penalty = unit(rng) - 0.5f;
  if (coin()) options.penalty_window = static_cast<std::uint32_t>(rng() % 20);
  if (coin()) {
    for (std::size_t id = rng() % 7; id < vocab; id += 1 + rng() % 40) {
      options.logit_bias.push_back({static_cast<TokenId>(id), 4.0f * unit(rng) - 2.0f});
    }
  }
  options.seed = rng();
  return options;
}

std::vector<TokenProbability> distribution(Sampler<>& sampler, const std::vector<float>& logits) {
  auto result = sampler.distribution(logits);
  REQUIRE(result.status().message() == "");
  REQUIRE(result.ok());
  return *result;
}

}  // namespace

TEST_CASE("sampler: the distribution equals a double-precision oracle", "[sampler]") {
  std::mt19937 rng(20240607);
  const std::array<std::size_t, 8> sizes = {1, 2, 3, 17, 64, 100, 1000, 9000};
  int compared = 0;
  int close_calls = 0;
  for (int round = 0; round < 6000; ++round) {
    const std::size_t vocab = round % 50 == 49 ? sizes[7] : sizes[rng() % (round % 10 == 0 ? 7 : 6)];
    const SamplerOptions options = random_options(rng, vocab);
    const std::vector<float> logits = random_logits(rng, vocab);
    auto sampler = *Sampler<>::create(options);
    std::vector<TokenId> seen;
    const std::size_t length = rng() % 60;
    for (std::size_t i = 0; i < length; ++i) {
      seen.push_back(static_cast<TokenId>(rng() % vocab));
      REQUIRE(sampler.accept(seen.back()).ok());
    }
    const OracleResult expected = oracle(logits, options, seen);
    if (expected.close_call) {
      ++close_calls;
      continue;
    }
    ++compared;
    const std::vector<TokenProbability> actual = distribution(sampler, logits);
    INFO("round " << round << " vocab " << vocab << " top_k " << options.top_k << " top_p " << options.top_p
                  << " min_p " << options.min_p << " typical_p " << options.typical_p << " temperature "
                  << options.temperature);
    REQUIRE(actual.size() == expected.probabilities.size());
    std::size_t i = 0;
    for (const auto& [id, p] : expected.probabilities) {
      REQUIRE(actual[i].id == id);
      REQUIRE(std::fabs(actual[i].probability - p) <= 1e-12 * p + 1e-300);
      ++i;
    }
    const TokenId token = *sampler.sample(logits);
    REQUIRE(expected.probabilities.count(token) == 1);
  }
  CHECK(compared > 5000);
  CHECK(close_calls < 900);
}

TEST_CASE("sampler: sampled frequencies follow the distribution", "[sampler]") {
  std::mt19937 rng(5);
  std::vector<float> logits(50);
  std::normal_distribution<float> normal(0.0f, 1.5f);
  for (float& logit : logits) logit = normal(rng);
  const auto chi_square = [&](const SamplerOptions& options, int num_draws) {
    auto sampler = *Sampler<>::create(options);
    const std::vector<TokenProbability> expected = distribution(sampler, logits);
    std::vector<double> counts(logits.size());
    for (int i = 0; i < num_draws; ++i) {
      const auto token = sampler.sample(logits);
      counts[static_cast<std::size_t>(*token)] += 1.0;
      static_cast<void>(sampler.accept(*token));
    }
    double sum = 0.0;
    double drawn = 0.0;
    for (const TokenProbability& e : expected) {
      const double want = e.probability * num_draws;
      const double got = counts[static_cast<std::size_t>(e.id)];
      sum += (got - want) * (got - want) / want;
      drawn += got;
    }
    CHECK(drawn == num_draws);  // nothing outside the distribution
    const auto freedom = static_cast<double>(expected.size() - 1);
    return (sum - freedom) / std::sqrt(2.0 * freedom);  // about standard normal
  };
  CHECK(std::fabs(chi_square({.seed = 1}, 1'000'000)) < 4.0);
  CHECK(std::fabs(chi_square({.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.02f, .seed = 7}, 200'000)) <
        4.0);
}

TEST_CASE("sampler: known answers of the random numbers", "[sampler]") {
  using Words = std::array<std::uint32_t, 4>;
  CHECK(sampling::philox({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(sampling::philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(sampling::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  CHECK(sampling::uniform(0, 0, 0) == static_cast<double>(0xe169c58d6627e8d5ull >> 11) / 9007199254740992.0);
}

TEST_CASE("sampler: draws depend on seed, choice and index only", "[sampler]") {
  std::vector<float> logits(1000);
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  for (float& logit : logits) logit = normal(rng);
  const SamplerOptions options{.temperature = 1.3f, .top_p = 0.97f, .repetition_penalty = 1.1f, .seed = 99};
  const auto reply = [&](Sampler<>& sampler, int count) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < count; ++i) {
      tokens.push_back(*sampler.sample(logits));
      CHECK(*sampler.sample(logits) == tokens.back());  // asking again changes nothing
      REQUIRE(sampler.accept(tokens.back()).ok());
    }
    return tokens;
  };
  auto first = *Sampler<>::create(options);
  auto second = *Sampler<>::create(options);
  const std::vector<TokenId> expected = reply(first, 60);
  CHECK(reply(second, 25) == std::vector<TokenId>(expected.begin(), expected.begin() + 25));
  Sampler<> copy = second;
  CHECK(reply(second, 35) == std::vector<TokenId>(expected.begin() + 25, expected.end()));
  CHECK(copy.index() == 25);
  CHECK(reply(copy, 35) == std::vector<TokenId>(expected.begin() + 25, expected.end()));
  Sampler<> moved = std::move(copy);
  REQUIRE(moved.start().ok());
  CHECK(reply(moved, 60) == expected);
  REQUIRE(moved.start({}, 1).ok());
  CHECK(reply(moved, 60) != expected);
  SamplerOptions other = options;
  other.seed = 100;
  auto third = *Sampler<>::create(other);
  CHECK(reply(third, 60) != expected);
}

TEST_CASE("sampler: parameters out of range are refused by name", "[sampler]") {
  const auto message = [](const SamplerOptions& options) {
    const auto sampler = Sampler<>::create(options);
    if (sampler.ok()) return std::string("accepted");
    CHECK(sampler.status().code() == Errc::kInvalidArgument);
    return std::string(sampler.status().message());
  };
  CHECK(message({.temperature = kNan}) == "temperature must be finite and at least 0, and is nan");
  CHECK(message({.temperature = kInf}) == "temperature must be finite and at least 0, and is inf");
  CHECK(message({.temperature = -0.5f}) == "temperature must be finite and at least 0, and is -0.5");
  CHECK(message({.top_k = -1}) == "top_k must be at least 0, and is -1");
  CHECK(message({.top_p = 1.5f}) == "top_p must be in [0, 1], and is 1.5");
  CHECK(message({.top_p = kNan}) == "top_p must be in [0, 1], and is nan");
  CHECK(message({.top_p = -0.25f}) == "top_p must be in [0, 1], and is -0.25");
  CHECK(message({.min_p = kInf}) == "min_p must be in [0, 1], and is inf");
  CHECK(message({.min_p = -kInf}) == "min_p must be in [0, 1], and is -inf");
  CHECK(message({.typical_p = 2.0f}) == "typical_p must be in [0, 1], and is 2");
  CHECK(message({.temperature = 0.0f, .top_p = kNan}) == "top_p must be in [0, 1], and is nan");
  CHECK(message({.repetition_penalty = 0.0f}) == "repetition_penalty must be finite and above 0, and is 0");
  CHECK(message({.repetition_penalty = kNan}) == "repetition_penalty must be finite and above 0, and is nan");
  CHECK(message({.frequency_penalty = kInf}) == "frequency_penalty must be finite, and is inf");
  CHECK(message({.presence_penalty = kNan}) == "presence_penalty must be finite, and is nan");
  CHECK(message({.penalty_window = 1u << 21}) == "penalty_window must be at most 1048576, and is 2097152");
  CHECK(message({.logit_bias = {{-1, 1.0f}}}) == "logit_bias: token -1 does not exist");
  CHECK(message({.logit_bias = {{3, kInf}}}) == "logit_bias of token 3 must be finite, and is inf");
  CHECK(message({.logit_bias = {{3, 1.0f}, {4, 1.0f}, {3, 2.0f}}}) == "logit_bias names token 3 twice");
  for (const SamplerOptions& edge :
       {SamplerOptions{}, SamplerOptions{.top_p = 0.0f}, SamplerOptions{.top_p = 1.0f}, SamplerOptions{.min_p = 1.0f},
        SamplerOptions{.typical_p = 0.0f}, SamplerOptions{.top_k = std::numeric_limits<std::int32_t>::max()},
        SamplerOptions{.temperature = std::numeric_limits<float>::denorm_min()},
        SamplerOptions{.temperature = std::numeric_limits<float>::max()}, SamplerOptions{.temperature = -0.0f}}) {
    CHECK(message(edge) == "accepted");
    auto sampler = *Sampler<>::create(edge);
    CHECK(sampler.sample(std::vector<float>{1.0f, -3.0f, std::numeric_limits<float>::max()}).ok());
  }
}

TEST_CASE("sampler: unusable logits are errors of that row alone", "[sampler]") {
  auto sampler = *Sampler<>::create({.temperature = 0.0f});
  const auto failure = [&](const std::vector<float>& logits) {
    const auto result = sampler.sample(logits);
    REQUIRE_FALSE(result.ok());
    return std::pair(result.status().code(), std::string(result.status().message()));
  };
  CHECK(failure({1.0f, 2.0f, kNan, kNan}) == std::pair(Errc::kBadValue, std::string("the logit of token 2 is NaN")));
  CHECK(failure({-kInf, -kInf}) == std::pair(Errc::kBadValue, std::string("all 2 logits are -infinity")));
  CHECK(failure({}) == std::pair(Errc::kInvalidArgument, std::string("no logits to sample from")));
  CHECK(*sampler.sample(std::vector<float>{1.0f, 2.0f}) == 1);
  auto biased = *Sampler<>::create({.logit_bias = {{7, 1.0f}}});
  const auto result = biased.sample(std::vector<float>(7));
  CHECK(result.status().code() == Errc::kInvalidArgument);
  CHECK(result.status().message() == "logit_bias: token 7 is outside the vocabulary of 7");
}

TEST_CASE("sampler: greedy takes the lowest id of the largest logits", "[sampler]") {
  auto sampler = *Sampler<>::create({.temperature = 0.0f, .top_k = 1, .top_p = 0.1f, .typical_p = 0.1f});
  CHECK(*sampler.sample(std::vector<float>{-1.0f, 5.0f, 5.0f, 4.0f}) == 1);
  CHECK(*sampler.sample(std::vector<float>{-0.0f, 0.0f}) == 0);
  CHECK(*sampler.sample(std::vector<float>{1.0f, kInf, 3.0f, kInf}) == 1);
  const auto only = distribution(sampler, {-1.0f, 5.0f, 5.0f});
  REQUIRE(only.size() == 1);
  CHECK(only[0].id == 1);
  CHECK(only[0].probability == 1.0);
  auto stages = *Sampler<sampling::Penalties, sampling::Greedy>::create({.repetition = 2.0f}, {});
  CHECK(*stages.sample(std::vector<float>{3.0f, 2.0f}) == 0);
  REQUIRE(stages.accept(0).ok());
  CHECK(*stages.sample(std::vector<float>{3.0f, 2.0f}) == 1);
}

TEST_CASE("sampler: nothing is allocated per token", "[sampler]") {
  std::mt19937 rng(21);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> logits(5000);
  for (float& logit : logits) logit = normal(rng);
  for (const SamplerOptions& options :
       {SamplerOptions{.temperature = 0.0f}, SamplerOptions{}, SamplerOptions{.temperature = 0.8f, .top_p = 0.99f},
        SamplerOptions{
            .top_k = 40, .min_p = 0.01f, .typical_p = 0.9f, .frequency_penalty = 0.1f, .penalty_window = 64}}) {
    auto sampler = *Sampler<>::create(options);
    const auto run = [&](int count) {
      bool ok = true;
      for (int i = 0; i < count; ++i) {
        const auto token = sampler.sample(logits);
        ok = ok && token.ok() && sampler.accept(*token % 50).ok();
      }
      return ok;
    };
    REQUIRE(run(200));
    const corbel_test::AllocationScope scope;
    const bool ok = run(200);
    const std::uint64_t count = scope.stats().count;
    CHECK(ok);
    CHECK(count == 0);
  }
}

TEST_CASE("sampler: top-k of a large vocabulary keeps exactly k, lowest ids first", "[sampler]") {
  std::mt19937 rng(11);
  for (const std::int32_t k : {1, 2, 40, 1000, 3999, 200'000}) {
    std::vector<float> logits(256'000);
    for (float& logit : logits) logit = static_cast<float>(static_cast<int>(rng() % 4000)) * 0.01f - 20.0f;
    auto sampler = *Sampler<>::create({.top_k = k});
    const auto kept = distribution(sampler, logits);
    REQUIRE(kept.size() == static_cast<std::size_t>(k));
    std::vector<TokenId> order(logits.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
      return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    order.resize(static_cast<std::size_t>(k));
    std::sort(order.begin(), order.end());
    bool equal = true;
    for (std::size_t i = 0; i < order.size(); ++i) equal = equal && kept[i].id == order[i];
    CHECK(equal);
  }
}

TEST_CASE("sampler: penalties count the reply, and the prompt where asked", "[sampler]") {
  const std::vector<float> logits = {1.0f, 1.0f, 1.0f};
  const std::vector<TokenId> prompt = {0, 0, 1};
  const auto probabilities = [&](bool penalize_prompt) {
    auto sampler = *Sampler<>::create({.frequency_penalty = 1.0f, .penalize_prompt = penalize_prompt});
    REQUIRE(sampler.start(prompt).ok());
    REQUIRE(sampler.accept(2).ok());
    std::vector<double> p;
    for (const TokenProbability& e : distribution(sampler, logits)) p.push_back(e.probability);
    return p;
  };
  const std::vector<double> reply = probabilities(false);
  CHECK(reply[0] == reply[1]);
  CHECK(reply[1] / reply[2] == Approx(std::exp(1.0)));
  const std::vector<double> both = probabilities(true);
  CHECK(both[1] == both[2]);
  CHECK(both[1] / both[0] == Approx(std::exp(1.0)));
}

TEST_CASE("sampler: token counts follow a window", "[sampler]") {
  std::mt19937 rng(8);
  for (const std::uint32_t window : {0u, 1u, 7u, 500u}) {
    sampling::TokenCounts counts;
    counts.clear(window);
    std::vector<TokenId> all;
    for (int i = 0; i < 5000; ++i) {
      all.push_back(static_cast<TokenId>(rng() % (1u << (rng() % 18))));
      counts.add(all.back());
      if (i % 617 != 0) continue;
      std::map<TokenId, std::uint32_t> expected;
      for (std::size_t j = window == 0 || all.size() < window ? 0 : all.size() - window; j < all.size(); ++j)
        ++expected[all[j]];
      std::map<TokenId, std::uint32_t> actual;
      for (const auto& entry : counts.entries())
        if (entry.count > 0) actual[entry.id] = entry.count;
      REQUIRE(actual == expected);
    }
  }
}

namespace {

// A stage of the user's own: only even ids, and only as many tokens as were accepted plus one.
struct EvenOnly {
  struct State {
    std::size_t accepted = 0;
  };
  bool leave_none = false;
  corbel::Status validate() const { return {}; }
  void start(State& state, std::span<const TokenId> prompt) const { state.accepted = prompt.size(); }
  void accept(State& state, TokenId) const { ++state.accepted; }
  corbel::Status apply(const State& state, sampling::Candidates& candidates) const {
    candidates.keep_if([&](std::size_t i) { return !leave_none && candidates.id(i) % 2 == 0; });
    if (!leave_none) candidates.keep_largest(state.accepted + 1);
    return {};
  }
};

}  // namespace

TEST_CASE("sampler: a chain of one's own, in its own order, with its own stage", "[sampler]") {
  auto sampler = *Sampler<sampling::Temperature, sampling::TopK, EvenOnly>::create({2.0f}, {4}, {}, 1);
  const std::vector<float> logits = {1.0f, 9.0f, 3.0f, 4.0f, 5.0f, 0.0f};
  REQUIRE(sampler.start().ok());
  auto kept = *sampler.distribution(logits);
  REQUIRE(kept.size() == 1);
  CHECK(kept[0].id == 4);
  REQUIRE(sampler.accept(4).ok());
  kept = *sampler.distribution(logits);
  REQUIRE(kept.size() == 2);
  CHECK(kept[0].id == 2);
  CHECK(kept[1].probability / kept[0].probability == Approx(std::exp(1.0)));  // (5 - 3) / 2
  auto empty = *Sampler<EvenOnly>::create({.leave_none = true});
  const auto result = empty.sample(logits);
  CHECK(result.status().code() == Errc::kBadValue);
  CHECK(result.status().message() == "the sampling stages left no usable probabilities (0 candidates)");
}
