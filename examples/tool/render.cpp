// corbel render: messages to a prompt, by a model's chat template or one from a file.
#include <chrono>

#include "common.hpp"

namespace tool {
namespace {

using corbel::json::Value;

struct Options {
  RunOptions run;
  std::string source;
  std::string conversation;
};

/// A template's text with what a checkpoint says about its tokens.
struct Template {
  std::string text;
  std::string bos_token;
  std::string eos_token;
};

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

Template read_template(const Options& options) {
  if (ends_with(options.source, ".jinja")) return {read_file(options.source), {}, {}};
  const corbel::Context context = make_context(options.run);
  const corbel::Checkpoint checkpoint = corbel::Checkpoint::open(options.source, context).value();
  const corbel::Tokenizer tokenizer = corbel::Tokenizer::from_checkpoint(checkpoint).value();
  const std::vector<corbel::NamedTemplate> templates = corbel::read_chat_templates(checkpoint).value();
  if (templates.empty()) throw WorkError(options.source + ": there is no chat template");
  return {templates.front().source, std::string(tokenizer.piece(tokenizer.bos())),
          std::string(tokenizer.piece(tokenizer.eos()))};
}

/// Seconds since 1970 of `now`: a number, or "2026-01-02" with or without " 15:04:05" (UTC); absent: the clock's.
std::int64_t read_now(const Value* now) {
  if (now == nullptr || now->is_null()) {
    const auto clock = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::seconds>(clock).count();
  }
  if (now->is_integer()) return now->as_int();
  if (now->is_number()) return static_cast<std::int64_t>(std::clamp(now->as_double(), -1.0, 1e15));
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  char separator = 0;
  const int fields = now->is_string() ? std::sscanf(std::string(now->as_string()).c_str(), "%4d-%2d-%2d%c%2d:%2d:%2d",
                                                    &year, &month, &day, &separator, &hour, &minute, &second)
                                      : 0;
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if ((fields != 3 && fields != 7) || !date.ok())
    throw WorkError("now: expected seconds since 1970 or \"YYYY-MM-DD HH:MM:SS\"");
  const std::chrono::seconds time = std::chrono::sys_days(date).time_since_epoch() + std::chrono::hours(hour) +
                                    std::chrono::minutes(minute) + std::chrono::seconds(second);
  return time.count();
}

std::string string_or(const Value& object, const char* key, const std::string& fallback) {
  const Value* value = object.find(key);
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : fallback;
}

std::string_view trim(std::string_view text) {
  constexpr const char* kSpace = " \t\n\r\f\v";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

/// continue_final_message: the prompt up to the end of the last message, as transformers cuts it.
std::string cut_after_last_message(const std::string& prompt, const Value& conversation) {
  const Value* messages = conversation.find("messages");
  const Value* content = nullptr;
  if (messages != nullptr && messages->is_array() && !messages->items().empty())
    content = messages->items().back().find("content");
  if (content == nullptr || !content->is_string())
    throw WorkError("continue_final_message: the last message has no text");
  const std::string_view text = content->as_string();
  const std::string_view trimmed = trim(text);
  const std::size_t place = prompt.rfind(trimmed);
  if (place == std::string::npos)
    throw WorkError("continue_final_message: the template changed the text of the last message");
  const bool kept_as_is = prompt.compare(place, text.size(), text) == 0;
  return prompt.substr(0, place + (kept_as_is ? text.size() : trimmed.size()));
}

/// The prompt of one JSON object. With its own `template` and `context`, the context alone holds the variables.
std::string render(const Value& input, const Template* given) {
  if (!input.is_object()) throw WorkError("expected a JSON object");
  const Value* own = input.find("template");
  const Value* context = own != nullptr ? input.find("context") : nullptr;
  if (own != nullptr && !own->is_string()) throw WorkError("template: expected a string");
  if (context != nullptr && !context->is_object()) throw WorkError("context: expected an object");
  if (own == nullptr && given == nullptr) throw WorkError("neither a MODEL nor a \"template\" in the object");

  const Value& conversation = context != nullptr ? *context : input;
  const std::string_view text = own != nullptr ? own->as_string() : std::string_view(given->text);
  const std::string bos = string_or(conversation, "bos_token", given != nullptr ? given->bos_token : "");
  const std::string eos = string_or(conversation, "eos_token", given != nullptr ? given->eos_token : "");

  Value variables = Value::object();
  for (const Value::Member& member : conversation.members()) {
    if (context == nullptr && (member.first == "now" || member.first == "template")) continue;
    variables.members().push_back(member);
  }
  if (context == nullptr) {
    for (const char* name : {"tools", "documents"})
      if (variables.find(name) == nullptr) variables.members().emplace_back(name, Value::null());
    if (variables.find("add_generation_prompt") == nullptr)
      variables.members().emplace_back("add_generation_prompt", Value::boolean(false));
  }
  const corbel::ChatTemplate chat = corbel::ChatTemplate::compile(text, bos, eos).value();
  const std::string prompt = corbel::join(chat.render(variables, read_now(input.find("now"))).value());
  const Value* cut = context == nullptr ? conversation.find("continue_final_message") : nullptr;
  const bool asked = cut != nullptr && cut->type() == corbel::json::Type::kBool && cut->as_bool();
  return asked ? cut_after_last_message(prompt, conversation) : prompt;
}

/// {"output": ...} or {"error": ...} for one line of a .jsonl file.
std::string answer_line(std::string_view line, const Template* given) {
  try {
    return "{\"output\": " + json_line_string(render(corbel::json::parse(line).value(), given)) + "}\n";
  } catch (const corbel::Exception& error) {
    // What a template raised stands alone, so that it can be compared; other errors name their place.
    const std::string_view raised = corbel::raised_text(error.status());
    return "{\"error\": " + json_line_string(raised.data() == nullptr ? error.status().message() : raised) + "}\n";
  } catch (const std::exception& error) {
    return "{\"error\": " + json_line_string(error.what()) + "}\n";
  }
}

void run(const Options& options) {
  const std::string file = read_file(options.conversation);
  std::optional<Template> given;
  if (!options.source.empty()) given = read_template(options);
  const Template* chosen = given ? &*given : nullptr;
  if (!ends_with(options.conversation, ".jsonl")) {
    print(render(parse_json(file, options.conversation), chosen));
    return;
  }
  for (std::string_view rest = file; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = trim(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!line.empty()) print(answer_line(line, chosen));
  }
}

}  // namespace

void add_render(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = add_verb(app, action, "render", "A conversation to the prompt that the model sees", options->run,
                            [options] { run(*options); });
  verb->add_option("MODEL", options->source, "A GGUF file, a Hugging Face folder, or a template FILE.jinja");
  verb->add_option("--conversation", options->conversation, "A JSON object, or a .jsonl file of them")->required();
}

}  // namespace tool
