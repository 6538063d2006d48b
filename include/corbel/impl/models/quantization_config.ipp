// Definitions of models/quantization_config.hpp: one reader per method.
#pragma once

#include <corbel/detail/guard.hpp>
#include <corbel/models/quantization_config.hpp>

#include <algorithm>
#include <fmt/format.h>
#include <initializer_list>
#include <string>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

/// Typed access to the members of one JSON object; the first failure is kept and later reads answer the fallback.
/// Members that are null count as absent, as the writers mean it.
class ObjectReader {
 public:
  ObjectReader(const json::Value& object, std::string place, Status& status)
      : object_(object), place_(std::move(place)), status_(status) {
    if (!object.is_object()) fail(Errc::kTypeMismatch, "expected an object");
  }

  const std::string& place() const noexcept { return place_; }
  std::string place_of(std::string_view key) const {
    return fmt::format("{}{}{}", place_, place_.ends_with(".json") ? ": " : ".", key);
  }
  void fail(Errc code, std::string_view message) { fail_at(place_, code, message); }
  void fail(std::string_view key, Errc code, std::string_view message) { fail_at(place_of(key), code, message); }

  const json::Value* find(std::string_view key) const {
    const json::Value* value = object_.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  /// The first of these that is there.
  const char* first_of(std::initializer_list<const char*> keys) const {
    for (const char* key : keys)
      if (find(key) != nullptr) return key;
    return *keys.begin();
  }

  std::string text(std::string_view key, std::string_view fallback) {
    const json::Value* value = find(key);
    if (value == nullptr) return std::string(fallback);
    if (value->is_string()) return std::string(value->as_string());
    fail(key, Errc::kTypeMismatch, "expected a string");
    return std::string(fallback);
  }
  bool flag(std::string_view key, bool fallback) {
    const json::Value* value = find(key);
    if (value == nullptr) return fallback;
    if (value->type() == json::Type::kBool) return value->as_bool();
    fail(key, Errc::kTypeMismatch, "expected true or false");
    return fallback;
  }
  std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t low, std::int64_t high) {
    const json::Value* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_integer()) {
      fail(key, Errc::kTypeMismatch, "expected an integer");
      return fallback;
    }
    return in_range(key, *value, fallback, low, high);
  }
  /// A needed integer that is one of these.
  std::uint32_t one_of(std::string_view key, std::initializer_list<std::uint32_t> allowed) {
    if (find(key) == nullptr) {
      fail(key, Errc::kMissingKey, "is missing");
      return *allowed.begin();
    }
    const std::int64_t value = integer(key, *allowed.begin(), 0, 1 << 30);
    if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return static_cast<std::uint32_t>(value);
    fail(key, Errc::kUnsupported,
         fmt::format("{} is not supported; supported are {}", value, fmt::join(allowed, ", ")));
    return *allowed.begin();
  }
  /// A group size: -1 (and null) mean one group per row.
  std::uint32_t group_size(std::string_view key, std::int64_t fallback) {
    const std::int64_t value = integer(key, fallback, -1, 1 << 24);
    if (value == 0) fail(key, Errc::kBadValue, "0 is no group size; -1 means one group per row");
    return value < 1 ? 0 : static_cast<std::uint32_t>(value);
  }
  double number(std::string_view key, double fallback) {
    const json::Value* value = find(key);
    if (value == nullptr) return fallback;
    if (value->is_number()) return value->as_double();
    fail(key, Errc::kTypeMismatch, "expected a number");
    return fallback;
  }
  /// Two positive integers: rows and columns of a block.
  void block(std::string_view key, std::uint32_t& rows, std::uint32_t& columns) {
    const json::Value* value = find(key);
    if (value == nullptr) return;
    if (!value->is_array() || value->items().size() != 2 || !value->items()[0].is_integer() ||
        !value->items()[1].is_integer())
      return fail(key, Errc::kTypeMismatch, "expected two integers");
    rows = static_cast<std::uint32_t>(in_range(key, value->items()[0], 1, 1, 1 << 24));
    columns = static_cast<std::uint32_t>(in_range(key, value->items()[1], 1, 1, 1 << 24));
  }
  std::vector<std::string> texts(std::string_view key) {
    std::vector<std::string> result;
    const json::Value* value = find(key);
    if (value == nullptr) return result;
    if (!value->is_array()) {
      fail(key, Errc::kTypeMismatch, "expected an array of strings");
      return result;
    }
    for (const json::Value& item : value->items()) {
      if (!item.is_string()) {
        fail(key, Errc::kTypeMismatch, "expected an array of strings");
        break;
      }
      result.emplace_back(item.as_string());
    }
    return result;
  }

 private:
  void fail_at(const std::string& place, Errc code, std::string_view message) {
    if (status_.ok()) status_ = Status(code, fmt::format("{}: {}", place, message));
  }
  std::int64_t in_range(std::string_view key, const json::Value& value, std::int64_t fallback, std::int64_t low,
                        std::int64_t high) {
    const std::int64_t number = value.as_int();
    const bool above = value.type() == json::Type::kUint && value.as_uint() > static_cast<std::uint64_t>(high);
    if (!above && number >= low && number <= high) return number;
    fail(key, Errc::kBadValue, fmt::format("{} is not in {} to {}", json::write(value), low, high));
    return fallback;
  }

  const json::Value& object_;
  std::string place_;
  Status& status_;
};

inline bool matches(const ModulePattern& pattern, std::string_view module) {
  const auto expression_matches = [&] {
    if (pattern.regex == nullptr) return false;
    text::RegexMatcher matcher(*pattern.regex);
    matcher.reset(module);
    text::RegexMatcher::Match match;
    const Result<bool> found = matcher.next(match);
    return found.ok() && *found;
  };
  switch (pattern.kind) {
    case ModulePattern::Kind::kExact:
      return module == pattern.text;
    case ModulePattern::Kind::kClass:
      return pattern.text == "Linear";
    case ModulePattern::Kind::kRegex:
      return expression_matches();
    case ModulePattern::Kind::kModule:
      return module.ends_with(pattern.text) || expression_matches();
  }
  return false;
}

}  // namespace detail

/// Fills a QuantizationConfig from its JSON.
class QuantizationConfigParser {
 public:
  explicit QuantizationConfigParser(std::string_view place) : place_(place) {}

  Result<QuantizationConfig> run(const json::Value& object) {
    detail::ObjectReader config(object, place_, status_);
    const char* key = config.first_of({"quant_method", "method"});
    const std::string method = config.text(key, config.find("bits") != nullptr ? "gptq" : "");
    if (!status_.ok()) return status_;
    if (method == "gptq") {
      gptq(config);
    } else if (method == "awq") {
      awq(config);
    } else if (method == "auto-round" || method == "intel/auto-round") {
      auto_round(config);
    } else if (method == "compressed-tensors" || method == "compressed_tensors") {
      compressed_tensors(config);
    } else if (method == "fp8") {
      fp8(config);
    } else if (method == "fbgemm_fp8") {
      fbgemm_fp8(config);
    } else if (method == "mxfp4") {
      mxfp4(config);
    } else if (method == "bitsandbytes" || method == "bitsandbytes_4bit" || method == "bitsandbytes_8bit") {
      bits_and_bytes(config);
    } else if (method.empty()) {
      config.fail(key, Errc::kMissingKey, "is missing");
    } else {
      config.fail(key, Errc::kUnsupported,
                  fmt::format("\"{}\" is not supported; supported are gptq, awq, auto-round, compressed-tensors, fp8, "
                              "fbgemm_fp8, mxfp4, bitsandbytes",
                              method));
    }
    if (!status_.ok()) return status_;
    return std::move(result_);
  }

 private:
  using Reader = detail::ObjectReader;
  using Pattern = detail::ModulePattern;

  /// A list of modules, or of parts of the tree.
  void leave_plain(const std::vector<std::string>& modules) {
    QuantizationConfig::Rule rule;
    rule.quantized = false;
    for (const std::string& module : modules) {
      Pattern pattern{Pattern::Kind::kModule, module, nullptr};
      // Most are names, whose dots match themselves too; what is no expression counts as a name only.
      if (Result<text::Regex> regex = text::Regex::compile("\\A(?:" + module + ")(?:(?<=\\.)|(?=\\.|\\z))"); regex.ok())
        pattern.regex = std::make_shared<const text::Regex>(std::move(*regex));
      rule.targets.push_back(std::move(pattern));
    }
    if (!rule.targets.empty()) result_.rules_.push_back(std::move(rule));
  }
  void everything_else(QuantScheme scheme) {
    QuantizationConfig::Rule rule;
    rule.targets.push_back({Pattern::Kind::kClass, "Linear", nullptr});
    scheme.method = result_.method_;
    rule.scheme = std::move(scheme);
    result_.rules_.push_back(std::move(rule));
  }

  void gptq_numbers(Reader& config, QuantScheme& scheme) {
    if (config.find("bits") != nullptr) scheme.bits = config.one_of("bits", {2, 3, 4, 8});
    if (config.find("group_size") != nullptr) scheme.group_size = config.group_size("group_size", -1);
    scheme.symmetric = config.flag("sym", scheme.symmetric);
    scheme.act_order = config.flag("desc_act", scheme.act_order);
  }

  void gptq(Reader& config) {
    result_.method_ = QuantMethod::kGptq;
    QuantScheme scheme;
    scheme.method = QuantMethod::kGptq;
    if (config.find("bits") == nullptr) config.fail("bits", Errc::kMissingKey, "is missing");
    gptq_numbers(config, scheme);
    const char* key = config.first_of({"checkpoint_format", "format"});
    const std::string format = config.text(key, "gptq");
    if (format == "gptq") {
      scheme.zero_plus_one = true;
    } else if (format != "gptq_v2") {
      config.fail(key, Errc::kUnsupported, fmt::format("\"{}\" is not supported; supported are gptq, gptq_v2", format));
    }
    if (config.flag("is_marlin_format", false))
      config.fail("is_marlin_format", Errc::kUnsupported,
                  "weights in the order of the marlin kernel are not supported");
    if (const std::string words = config.text("pack_dtype", "int32"); words != "int32")
      config.fail("pack_dtype", Errc::kUnsupported, fmt::format("\"{}\" is not supported; supported is int32", words));
    if (const json::Value* overrides = config.find("dynamic")) gptq_overrides(config, *overrides, scheme);
    leave_plain(config.texts("modules_to_not_convert"));
    everything_else(std::move(scheme));
  }

  /// Per-module changes, in the order of the file: the first pattern that matches counts. "-:" leaves the module plain.
  void gptq_overrides(Reader& config, const json::Value& overrides, const QuantScheme& base) {
    if (overrides.type() == json::Type::kBool && !overrides.as_bool()) return;  // how some writers say "none"
    if (!overrides.is_object()) return config.fail("dynamic", Errc::kTypeMismatch, "expected an object");
    for (const json::Value::Member& member : overrides.members()) {
      std::string_view pattern = member.first;
      QuantizationConfig::Rule rule;
      rule.scheme = base;
      rule.quantized = !pattern.starts_with("-:");
      if (pattern.starts_with("-:") || pattern.starts_with("+:")) pattern.remove_prefix(2);
      rule.targets.push_back(expression(config.place_of("dynamic"), pattern));
      if (rule.quantized) {
        Reader changes(member.second, config.place_of("dynamic") + "." + member.first, status_);
        if (!status_.ok()) return;
        gptq_numbers(changes, rule.scheme);
      }
      result_.rules_.push_back(std::move(rule));
    }
  }

  void awq(Reader& config) {
    result_.method_ = QuantMethod::kAwq;
    QuantScheme scheme;
    scheme.method = QuantMethod::kAwq;
    scheme.symmetric = !config.flag("zero_point", true);
    scheme.bits = config.one_of(config.first_of({"bits", "w_bit"}), {4});
    scheme.group_size = config.group_size(config.first_of({"group_size", "q_group_size"}), 128);
    const char* key = config.first_of({"version", "checkpoint_format", "format"});
    std::string version = config.text(key, "gemm");
    std::transform(version.begin(), version.end(), version.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    scheme.rows_packed = version == "gemv";
    if (version != "gemm" && version != "gemv")
      config.fail(key, Errc::kUnsupported, fmt::format("\"{}\" is not supported; supported are gemm, gemv", version));
    leave_plain(config.texts("modules_to_not_convert"));
    everything_else(std::move(scheme));
  }

  void auto_round(Reader& config) {
    const std::string packing = config.text("packing_format", "auto_round:auto_gptq");
    if (packing == "auto_round:auto_awq") return awq(config);
    if (packing == "auto_round:auto_gptq") return gptq(config);
    config.fail(
        "packing_format", Errc::kUnsupported,
        fmt::format("\"{}\" is not supported; supported are auto_round:auto_gptq, auto_round:auto_awq", packing));
  }

  void compressed_tensors(Reader& config) {
    result_.method_ = QuantMethod::kCompressedTensors;
    const std::string format = config.text("format", "");
    check_format(config, format);
    if (const json::Value* sparsity = config.find("sparsity_config"); sparsity != nullptr) {
      Reader reader(*sparsity, config.place_of("sparsity_config"), status_);
      if (const std::string kind = reader.text("format", "dense"); kind != "dense")
        reader.fail("format", Errc::kUnsupported, fmt::format("sparse weights (\"{}\") are not supported", kind));
    }
    if (const json::Value* transform = config.find("transform_config"); transform != nullptr) {
      Reader reader(*transform, config.place_of("transform_config"), status_);
      const json::Value* rotations = reader.find("config_groups");
      if (rotations != nullptr && !rotations->is_object())
        reader.fail("config_groups", Errc::kTypeMismatch, "expected an object");
      if (rotations != nullptr && !rotations->members().empty())
        reader.fail(Errc::kUnsupported, "rotated weights are not supported");
    }
    const json::Value* groups = config.find("config_groups");
    if (groups == nullptr) return config.fail("config_groups", Errc::kMissingKey, "is missing");
    if (!groups->is_object()) return config.fail("config_groups", Errc::kTypeMismatch, "expected an object");
    QuantizationConfig::Rule ignored;
    ignored.quantized = false;
    for (const std::string& module : config.texts("ignore"))
      ignored.targets.push_back(pattern_of(config.place_of("ignore"), module));
    result_.rules_.push_back(std::move(ignored));
    for (const json::Value::Member& member : groups->members()) {
      Reader group(member.second, config.place_of("config_groups") + "." + member.first, status_);
      if (!status_.ok()) return;
      check_format(group, group.text("format", ""));
      QuantizationConfig::Rule rule;
      rule.scheme.method = QuantMethod::kCompressedTensors;
      for (const std::string& target : group.texts("targets"))
        rule.targets.push_back(pattern_of(group.place_of("targets"), target));
      if (const json::Value* weights = group.find("weights")) {
        Reader reader(*weights, group.place_of("weights"), status_);
        if (status_.ok()) weight_numbers(reader, rule.scheme);
      } else {
        rule.quantized = false;
      }
      if (const json::Value* inputs = group.find("input_activations")) {
        Reader reader(*inputs, group.place_of("input_activations"), status_);
        if (status_.ok()) activation_numbers(reader, rule.scheme.activations);
      }
      if (!status_.ok()) return;
      result_.rules_.push_back(std::move(rule));
    }
  }

  void check_format(Reader& config, const std::string& format) {
    for (const char* known : {"", "dense", "pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
                              "mixed-precision", "nvfp4-pack-quantized", "mxfp4-pack-quantized"})
      if (format == known) return;
    config.fail("format", Errc::kUnsupported, fmt::format("\"{}\" is not supported", format));
  }
  /// An expression that matches at the start of a name.
  Pattern expression(const std::string& place, std::string_view source) {
    Pattern pattern{Pattern::Kind::kRegex, std::string(source), nullptr};
    Result<text::Regex> regex = text::Regex::compile("\\A(?:" + pattern.text + ")");
    if (regex.ok()) {
      pattern.regex = std::make_shared<const text::Regex>(std::move(*regex));
    } else if (status_.ok()) {
      status_ = Status(regex.status().code(),
                       fmt::format("{}: pattern \"{}\": {}", place, pattern.text, regex.status().message()));
    }
    return pattern;
  }
  Pattern pattern_of(const std::string& place, const std::string& target) {
    if (target.starts_with("re:")) return expression(place, std::string_view(target).substr(3));
    // Names of classes have no dots and begin with a capital letter.
    const bool is_class =
        !target.empty() && target[0] >= 'A' && target[0] <= 'Z' && target.find('.') == std::string::npos;
    return {is_class ? Pattern::Kind::kClass : Pattern::Kind::kExact, target, nullptr};
  }

  void weight_numbers(Reader& config, QuantScheme& scheme) {
    const std::string type = config.text("type", "int");
    if (type != "int" && type != "float")
      config.fail("type", Errc::kUnsupported, fmt::format("\"{}\" is not supported; supported are int, float", type));
    scheme.is_float = type == "float";
    scheme.bits =
        scheme.is_float ? config.one_of("num_bits", {8, 4}) : config.one_of("num_bits", {4, 8, 2, 3, 5, 6, 7, 1});
    scheme.symmetric = config.flag("symmetric", true);
    if (scheme.is_float && !scheme.symmetric)
      config.fail("symmetric", Errc::kUnsupported, "small floats with a zero point are not supported");
    scheme.group_size = config.group_size("group_size", -1);
    if (const json::Value* order = config.find("actorder"); order != nullptr) {
      if (order->type() == json::Type::kBool) {
        scheme.act_order = order->as_bool();
      } else {
        scheme.act_order = !config.text("actorder", "").empty();
      }
    }
    config.block("block_structure", scheme.block_rows, scheme.block_columns);
    const std::string strategy = config.text("strategy", scheme.group_size != 0 ? "group" : "tensor");
    if (strategy == "tensor") {
      scheme.sharing = QuantSharing::kTensor;
    } else if (strategy == "channel") {
      scheme.sharing = QuantSharing::kChannel;
    } else if (strategy == "group" || strategy == "tensor_group") {
      scheme.sharing = scheme.group_size != 0 ? QuantSharing::kGroup : QuantSharing::kChannel;
    } else if (strategy == "block") {
      scheme.sharing = QuantSharing::kBlock;
      if (scheme.block_rows == 0) config.fail("block_structure", Errc::kMissingKey, "is missing");
    } else {
      config.fail(
          "strategy", Errc::kUnsupported,
          fmt::format("\"{}\" is not supported; supported are tensor, channel, group, tensor_group, block", strategy));
    }
  }

  void activation_numbers(Reader& config, ActivationScheme& scheme) {
    const std::string type = config.text("type", "int");
    const std::int64_t bits = config.integer("num_bits", 8, 1, 16);
    const std::string strategy = config.text("strategy", "token");
    scheme.symmetric = config.flag("symmetric", true);
    scheme.group_size = config.group_size("group_size", -1);
    scheme.dynamic = true;
    if (const json::Value* dynamic = config.find("dynamic"); dynamic == nullptr) {
      scheme.dynamic = false;
    } else if (dynamic->type() == json::Type::kBool) {
      scheme.dynamic = dynamic->as_bool();
    } else if (const std::string how = config.text("dynamic", "local"); how != "local") {
      config.fail("dynamic", Errc::kUnsupported, fmt::format("\"{}\" is not supported; supported is local", how));
    }
    if (bits == 8 && type == "int") {
      scheme.type = ActivationScheme::Type::kInt8;
    } else if (bits == 8 && type == "float" && scheme.symmetric) {
      scheme.type = ActivationScheme::Type::kFloat8;
    } else {
      scheme.type = ActivationScheme::Type::kOther;
      scheme.other = fmt::format("{}{} per {}", type, bits, strategy);
    }
    if (strategy == "tensor") {
      scheme.sharing = QuantSharing::kTensor;
    } else if (strategy == "token") {
      scheme.sharing = QuantSharing::kToken;
    } else if (strategy == "group" && scheme.group_size != 0) {
      scheme.sharing = QuantSharing::kGroup;
    } else {
      scheme.type = ActivationScheme::Type::kOther;
      scheme.other = fmt::format("{}{} per {}", type, bits, strategy);
    }
  }

  void fp8(Reader& config) {
    result_.method_ = QuantMethod::kFp8;
    QuantScheme scheme;
    scheme.bits = 8;
    scheme.is_float = true;
    scheme.sharing = QuantSharing::kTensor;
    if (const std::string kind = config.text(config.first_of({"fmt", "weight_fmt"}), "e4m3");
        kind != "e4m3" && kind != "float8_e4m3fn")
      config.fail("fmt", Errc::kUnsupported, fmt::format("\"{}\" is not supported; supported is e4m3", kind));
    config.block("weight_block_size", scheme.block_rows, scheme.block_columns);
    if (scheme.block_rows != 0) scheme.sharing = QuantSharing::kBlock;
    const std::string activations = config.text("activation_scheme", "dynamic");
    scheme.activations.type = ActivationScheme::Type::kFloat8;
    if (activations == "dynamic") {
      // With blocks of weights each row of inputs has one scale per block, else one.
      scheme.activations.sharing = scheme.block_rows != 0 ? QuantSharing::kGroup : QuantSharing::kToken;
      scheme.activations.group_size = scheme.block_columns;
    } else if (activations == "static") {
      scheme.activations.dynamic = false;
      scheme.activations.sharing = QuantSharing::kTensor;
    } else {
      config.fail("activation_scheme", Errc::kUnsupported,
                  fmt::format("\"{}\" is not supported; supported are dynamic, static", activations));
    }
    leave_plain(config.texts("modules_to_not_convert"));
    leave_plain(config.texts("ignored_layers"));
    everything_else(std::move(scheme));
  }

  void fbgemm_fp8(Reader& config) {
    result_.method_ = QuantMethod::kFbgemmFp8;
    QuantScheme scheme;
    scheme.bits = 8;
    scheme.is_float = true;
    scheme.sharing = QuantSharing::kChannel;
    scheme.activations.type = ActivationScheme::Type::kFloat8;
    const double bound = config.number("activation_scale_ub", 1200.0);
    if (!(bound > 0 && bound < 3e38))
      config.fail("activation_scale_ub", Errc::kBadValue, fmt::format("{} is not a positive number", bound));
    scheme.activations.upper_bound = static_cast<float>(bound);
    leave_plain(config.texts("modules_to_not_convert"));
    everything_else(std::move(scheme));
  }

  void mxfp4(Reader& config) {
    result_.method_ = QuantMethod::kMxfp4;
    QuantScheme scheme;
    scheme.bits = 4;
    scheme.is_float = true;
    scheme.group_size = 32;
    leave_plain(config.texts("modules_to_not_convert"));
    everything_else(std::move(scheme));
  }

  void bits_and_bytes(Reader& config) {
    result_.method_ = QuantMethod::kBitsAndBytes;
    QuantScheme scheme;
    const bool four = config.flag(config.first_of({"load_in_4bit", "_load_in_4bit"}), false);
    const bool eight = config.flag(config.first_of({"load_in_8bit", "_load_in_8bit"}), false);
    if (four == eight) config.fail(Errc::kBadValue, "expected one of load_in_4bit and load_in_8bit to be true");
    scheme.bits = four ? 4 : 8;
    scheme.is_float = four;
    scheme.group_size = four ? 64 : 0;
    if (eight) scheme.sharing = QuantSharing::kChannel;
    leave_plain(config.texts("llm_int8_skip_modules"));
    everything_else(std::move(scheme));
  }

  std::string place_;
  Status status_;
  QuantizationConfig result_;
};

CORBEL_INLINE Result<QuantizationConfig> QuantizationConfig::parse(const json::Value& config, std::string_view place) {
  return corbel::detail::guard(
      [&]() -> Result<QuantizationConfig> { return QuantizationConfigParser(place).run(config); });
}

CORBEL_INLINE const QuantScheme* QuantizationConfig::find(std::string_view module) const {
  using Kind = detail::ModulePattern::Kind;
  const auto rule_of = [&](const Rule& rule, std::initializer_list<Kind> kinds) {
    return std::any_of(rule.targets.begin(), rule.targets.end(), [&](const detail::ModulePattern& pattern) {
      return std::find(kinds.begin(), kinds.end(), pattern.kind) != kinds.end() && detail::matches(pattern, module);
    });
  };
  // Exclusions first, whatever they are written as; then names, then expressions, then classes.
  for (const Rule& rule : rules_)
    if (!rule.quantized && method_ == QuantMethod::kCompressedTensors &&
        rule_of(rule, {Kind::kExact, Kind::kRegex, Kind::kModule}))
      return nullptr;
  for (const Kind kind : {Kind::kExact, Kind::kRegex, Kind::kModule, Kind::kClass})
    for (const Rule& rule : rules_)
      if (rule_of(rule, {kind})) return rule.quantized ? &rule.scheme : nullptr;
  return nullptr;
}

CORBEL_INLINE const QuantScheme* QuantizationConfig::find_or_general(std::string_view module) const {
  if (const QuantScheme* scheme = find(module)) return scheme;
  if (method_ == QuantMethod::kCompressedTensors || rules_.empty() || !rules_.back().quantized) return nullptr;
  return &rules_.back().scheme;
}

CORBEL_INLINE std::string describe(const QuantScheme& scheme) {
  std::string text = scheme.is_float ? fmt::format("fp{}", scheme.bits) : fmt::format("int{}", scheme.bits);
  switch (scheme.sharing) {
    case QuantSharing::kTensor:
      text += " per tensor";
      break;
    case QuantSharing::kChannel:
    case QuantSharing::kToken:
      text += " per channel";
      break;
    case QuantSharing::kGroup:
      text += scheme.group_size == 0 ? " per channel" : fmt::format(" groups of {}", scheme.group_size);
      break;
    case QuantSharing::kBlock:
      text += fmt::format(" blocks of {}x{}", scheme.block_rows, scheme.block_columns);
      break;
  }
  if (!scheme.symmetric) text += " with zero points";
  if (scheme.act_order) text += " act-order";
  const ActivationScheme& inputs = scheme.activations;
  if (inputs.type != ActivationScheme::Type::kNone) {
    text += fmt::format(", {} {} activations", inputs.dynamic ? "dynamic" : "static",
                        inputs.type == ActivationScheme::Type::kInt8     ? "int8"
                        : inputs.type == ActivationScheme::Type::kFloat8 ? "fp8"
                                                                         : inputs.other.c_str());
  }
  return text;
}

CORBEL_INLINE std::string QuantizationConfig::describe() const {
  const char* name = "gptq";
  switch (method_) {
    case QuantMethod::kGptq:
      break;
    case QuantMethod::kAwq:
      name = "awq";
      break;
    case QuantMethod::kCompressedTensors:
      name = "compressed-tensors";
      break;
    case QuantMethod::kFp8:
      name = "fp8";
      break;
    case QuantMethod::kFbgemmFp8:
      name = "fbgemm_fp8";
      break;
    case QuantMethod::kMxfp4:
      name = "mxfp4";
      break;
    case QuantMethod::kBitsAndBytes:
      name = "bitsandbytes";
      break;
  }
  std::string text;
  for (const Rule& rule : rules_) {
    if (!rule.quantized) continue;
    const std::string part = models::describe(rule.scheme);
    if (text.find(part) == std::string::npos) text += (text.empty() ? " " : "; ") + part;
  }
  return name + text;
}

}  // namespace models
CORBEL_NAMESPACE_END
