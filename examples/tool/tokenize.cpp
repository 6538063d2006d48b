// corbel tokenize: stdin to token ids, or back.
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

/// One JSON value a line in, one a line out.
void run_lines(const corbel::Tokenizer& tokenizer, std::string_view text, const Options& options) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string place = "line " + std::to_string(number);
    std::string answer;
    if (options.decode) {
      answer = json_line_string(decode(tokenizer, line, place, options));
    } else {
      const corbel::json::Value value = parse_json(line, place);
      if (!value.is_string()) throw WorkError(place + ": expected a JSON string");
      answer = encode(tokenizer, value.as_string(), options);
    }
    print(answer + "\n");
  }
}

void run(const Options& options) {
  const corbel::Context context = make_context(options.run);
  const corbel::Checkpoint checkpoint = corbel::Checkpoint::open(options.model, context).value();
  const corbel::Tokenizer tokenizer = corbel::Tokenizer::from_checkpoint(checkpoint).value();
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
  verb->add_option("MODEL", options->model, "A GGUF or safetensors file, or a Hugging Face folder")->required();
  verb->add_flag("--special", options->special, "Control tokens may appear in the text; else they are plain text");
  verb->add_flag("--add-special", options->add_special, "Add beginning- and end-of-sequence tokens as the file asks");
  verb->add_flag("--decode", options->decode, "A JSON list of ids to the text's bytes");
  verb->add_flag("--lines", options->lines, "One JSON string (or list of ids) a line, answered a line each");
}

}  // namespace tool
