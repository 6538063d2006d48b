// corbel tokenize: stdin to token ids, or back.
#include <filesystem>

#include "common.hpp"

namespace tool {
namespace {

struct Options {
  RunOptions run;
  std::string model;
  bool special = false;
  bool add_special = false;
  bool decode = false;
  bool lines = false;
};

std::string encode(const corbel::Tokenizer& tokenizer, std::string_view text, const Options& options) {
  return ids_to_json(
      tokenizer.encode(text, {.parse_special = options.special, .add_special = options.add_special}).value());
}

std::string decode(const corbel::Tokenizer& tokenizer, std::string_view json, const std::string& place,
                   const Options& options) {
  const std::vector<corbel::TokenId> ids = ids_from_json(parse_json(json, place), place);
  return tokenizer.decode(ids, {.special = options.special}).value();
}

/// As decode(), with U+FFFD for what is no valid UTF-8: JSON is text.
std::string decode_text(const corbel::Tokenizer& tokenizer, std::string_view json, const std::string& place,
                        const Options& options) {
  corbel::StreamDecoder stream(tokenizer, {.special = options.special});
  std::string text;
  for (const corbel::TokenId id : ids_from_json(parse_json(json, place), place)) text += stream.push(id).value();
  return text + stream.finish();
}

/// One JSON value a line in, one a line out.
void run_lines(const corbel::Tokenizer& tokenizer, std::string_view text, const Options& options) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string place = "line " + std::to_string(number);
    std::string answer;
    if (options.decode) {
      answer = json_line_string(decode_text(tokenizer, line, place, options));
    } else {
      const corbel::json::Value value = parse_json(line, place);
      if (!value.is_string()) throw WorkError(place + ": expected a JSON string");
      answer = encode(tokenizer, value.as_string(), options);
    }
    print(answer + "\n");
  }
}

/// A tokenizer.json and what lies beside it need no model.
corbel::Tokenizer open_tokenizer(const Options& options) {
  const std::filesystem::path path = options.model;
  const bool folder = std::filesystem::is_directory(path);
  const std::filesystem::path json = folder ? path / "tokenizer.json" : path;
  if (json.extension() == ".json" && std::filesystem::is_regular_file(json)) {
    const auto beside = [&](const char* name) {
      const std::filesystem::path file = json.parent_path() / name;
      return std::filesystem::is_regular_file(file) ? read_file(file.string()) : std::string();
    };
    const std::string texts[] = {read_file(json.string()), beside("tokenizer_config.json"),
                                 beside("special_tokens_map.json"), beside("generation_config.json")};
    if (texts[0].empty()) throw WorkError(json.string() + ": the file is empty");
    return corbel::Tokenizer::from_documents({texts[0], texts[1], texts[2], texts[3], {}, {}}).value();
  }
  const corbel::Context context = make_context(options.run);
  return corbel::Tokenizer::from_checkpoint(corbel::Checkpoint::open(options.model, context).value()).value();
}

void run(const Options& options) {
  const corbel::Tokenizer tokenizer = open_tokenizer(options);
  const std::string text = read_stdin();
  if (options.lines)
    run_lines(tokenizer, text, options);
  else if (options.decode)
    print(decode(tokenizer, text, "stdin", options));
  else
    print(encode(tokenizer, text, options) + "\n");
}

}  // namespace

void add_tokenize(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = add_verb(app, action, "tokenize", "stdin (bytes) to a JSON list of token ids, or back", options->run,
                            [options] { run(*options); });
  verb->add_option("MODEL", options->model, "A GGUF or safetensors file, a Hugging Face folder, or a tokenizer.json")
      ->required();
  verb->add_flag("--special", options->special, "Control tokens may appear in the text; else they are plain text");
  verb->add_flag("--add-special", options->add_special, "Add beginning- and end-of-sequence tokens as the file asks");
  verb->add_flag("--decode", options->decode, "A JSON list of ids to the text (of a GGUF file: its bytes)");
  verb->add_flag("--lines", options->lines, "One JSON string (or list of ids) a line, answered a line each");
}

}  // namespace tool
