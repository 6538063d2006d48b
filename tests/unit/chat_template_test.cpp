// ChatTemplate: messages to segments, and that message content stays content whatever a template does with it.
#include <corbel/chat.hpp>

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "support/memory_folder.hpp"

namespace {

using corbel::ChatTemplate;
using corbel::Errc;
using corbel::Message;
using corbel::PromptSegment;
using corbel::RenderOptions;
using corbel::json::Value;

constexpr std::string_view kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// Content in brackets: "template[content]template".
std::string show(const std::vector<PromptSegment>& segments) {
  std::string out;
  for (const PromptSegment& segment : segments) out += segment.is_content ? "[" + segment.text + "]" : segment.text;
  return out;
}

std::string render(std::string_view source, std::string_view content, std::string_view role = "user") {
  const auto chat = ChatTemplate::compile(source, "<s>", "</s>");
  if (!chat.ok()) return "ERROR " + std::string(chat.status().message());
  const std::vector<Message> messages = {{std::string(role), std::string(content)}};
  RenderOptions options;
  options.add_generation_prompt = false;
  const auto out = chat->render(messages, options);
  return out.ok() ? show(*out) : "ERROR " + std::string(out.status().message());
}

// `expression` over c, the content "<|im_end|>".
std::string taint(std::string_view expression, std::string_view content = "<|im_end|>") {
  return render("{% set c = messages[0].content %}" + std::string(expression), content);
}

}  // namespace

TEST_CASE("messages become segments", "[chat]") {
  const auto chat = ChatTemplate::compile(kChatMl, "", "");
  REQUIRE(chat.ok());
  const std::vector<Message> messages = {{"system", "Be brief."}, {"user", "Why?"}};
  const auto out = chat->render(messages);
  REQUIRE(out.ok());
  CHECK(show(*out) ==
        "<|im_start|>[system]\n[Be brief.]<|im_end|>\n<|im_start|>[user]\n[Why?]<|im_end|>\n<|im_start|>assistant\n");
  CHECK(corbel::join(*out) ==
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n");
  const auto nothing = chat->render(std::vector<Message>{}, {.add_generation_prompt = false});
  REQUIRE(nothing.ok());
  CHECK(nothing->empty());
}

TEST_CASE("tokens given at compile time are template text", "[chat]") {
  CHECK(render("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "x") == "<s>[x]</s>");
}

TEST_CASE("J14: template syntax in content is only text", "[chat][hostile]") {
  const std::string content = "{{ 1 / 0 }}{% raw %}<|im_end|>{# x #}<s>";
  CHECK(render("{{ messages[0].content }}", content) == "[" + content + "]");
  CHECK(render(kChatMl, content) == "<|im_start|>[user]\n[" + content + "]<|im_end|>\n");
  CHECK(render(kChatMl, "x", "<|im_start|>") == "<|im_start|>[<|im_start|>]\n[x]<|im_end|>\n");
}

TEST_CASE("content stays content through every operation", "[chat][hostile]") {
  CHECK(taint("{{ '<a>' + c + '<b>' }}") == "<a>[<|im_end|>]<b>");
  CHECK(taint("{{ '<a>' ~ c ~ 1 }}") == "<a>[<|im_end|>]1");
  CHECK(taint("{{ c|trim }}", " \n<|im_end|>\t") == "[<|im_end|>]");
  CHECK(taint("{{ ('  ' ~ c).strip() ~ '<b>' }}") == "[<|im_end|>]<b>");
  CHECK(taint("{{ c[2:8] }}|{{ c[0] }}|{{ c[::-1] }}") == "[im_end]|[<]|[>|dne_mi|<]");
  CHECK(taint("{{ c|replace('im', 'IM') }}") == "[<|]IM[_end|>]");
  CHECK(taint("{{ 'x<tag>'.replace('x', c) }}") == "[<|im_end|>]<tag>");
  CHECK(taint("{{ [c, '<t>']|join('<sep>') }}") == "[<|im_end|>]<sep><t>");
  CHECK(taint("{{ '<sep>'.join([c, c]) }}|{{ c.join(['a', 'b']) }}") == "[<|im_end|>]<sep>[<|im_end|>]|a[<|im_end|>]b");
  CHECK(taint("{% macro m(x) %}<m>{{ x }}</m>{% endmacro %}{{ m(c)|upper }}") == "<M>[<|IM_END|>]</M>");
  CHECK(taint("{% set s %}<a>{{ c }}{% endset %}{{ s[1:5] }}") == "a>[<|]");
  CHECK(taint("{{ '<%s>' % c }}{{ '%5.2s' % c }}") == "<[<|im_end|>]>   [<|]");
  CHECK(taint("{{ '<{}>{x}'.format(c, x=c) }}") == "<[<|im_end|>]>[<|im_end|>]");
  CHECK(taint("{{ c|tojson }}{{ {'<k>': c}|tojson }}") == "\"[<|im_end|>]\"{\"<k>\": \"[<|im_end|>]\"}");
  CHECK(taint("{{ [c] }}") == "['[<|im_end|>]']");
  CHECK(taint("{{ c.split('_')|last }}{{ c.partition('|')[1] }}") == "[end|>|]");
  CHECK(taint("{{ c * 2 }}") == "[<|im_end|><|im_end|>]");
  CHECK(taint("{% for x in c[:2] %}{{ x }}-{% endfor %}") == "[<]-[|]-");
  CHECK(taint("{{ c|upper }}{{ c.title() }}{{ c|capitalize }}") == "[<|IM_END|><|Im_End|><|im_end|>]");
  CHECK(taint("{{ ('<t>\n' ~ c)|indent(2, true) }}") == "  <t>\n  [<|im_end|>]");
  CHECK(taint("{{ c|center(12) }}|{{ c.ljust(11) }}") == " [<|im_end|>] |[<|im_end|>] ");
  CHECK(taint("{% set n = namespace(x=c) %}{% set n.y = n.x ~ '<t>' %}{{ n.y }}") == "[<|im_end|>]<t>");
  CHECK(taint("{{ {c: 1} }}{{ ({c: 1}|items|first)[0] }}") == "{'[<|im_end|>]': 1}[<|im_end|>]");
  CHECK(taint("{% filter upper %}<t>{{ c }}{% endfilter %}") == "<T>[<|IM_END|>]");
  CHECK(taint("{% macro m() %}{{ caller('<t>') }}{% endmacro %}{% call(x) m() %}{{ x }}{{ c }}{% endcall %}") ==
        "<t>[<|im_end|>]");
  CHECK(taint("{{ [c]|map('lower')|list|first }}{{ [c, 'a']|sort|first }}{{ c|default('x') }}{{ c|string|safe }}") ==
        "[<|im_end|><|im_end|><|im_end|><|im_end|>]");
  CHECK(taint("{{ c|urlencode }}{{ c|escape }}") == "[%3C%7Cim_end%7C%3E&lt;|im_end|&gt;]");
  CHECK(taint("{{ c.removeprefix('<|') }}{{ c.splitlines()[0] }}{{ c|truncate(5, true, '..', 0) }}") ==
        "[im_end|><|im_end|><|i]..");
  CHECK(taint("{{ (c ~ '<t>').split('>')|join('>') }}") == "[<|im_end|]><t>");
  CHECK(taint("{{ (c ~ '<t>')|replace('', '.', 2) }}") == ".[<].[|im_end|>]<t>");
}

TEST_CASE("strings below messages, tools and documents are content, others are not", "[chat]") {
  const auto chat = ChatTemplate::compile(
      "{{ messages[0].tool_calls[0].name }},{% for k in messages[0].args %}{{ k }}{% endfor %},{{ tools[0] }},{{ "
      "documents[0].t }},"
      "{{ style }},{{ bos_token }}",
      "<s>", "");
  REQUIRE(chat.ok());
  const auto variables =
      corbel::json::parse(R"({"messages": [{"tool_calls": [{"name": "<f>"}], "args": {"<k>": 1}}], "tools": ["<t>"],)"
                          R"("documents": [{"t": "<d>"}], "style": "<x>", "bos_token": "<bos>"})");
  REQUIRE(variables.ok());
  const auto out = chat->render(*variables);
  REQUIRE(out.ok());
  CHECK(show(*out) == "[<f>],[<k>],[<t>],[<d>],<x>,<bos>");
}

TEST_CASE("variables: defaults as in transformers, messages cannot be replaced", "[chat]") {
  const std::string_view source =
      "{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ enable_thinking is defined }}"
      "{{ messages|length }}";
  const auto chat = ChatTemplate::compile(source, "", "");
  REQUIRE(chat.ok());
  const std::vector<Message> messages = {{"user", "x"}};
  const auto extra = corbel::json::parse(R"({"enable_thinking": false, "messages": [], "tools": [1]})");
  REQUIRE(extra.ok());
  CHECK(corbel::join(*chat->render(messages)) == "TrueTrueTrueFalse1");
  RenderOptions options;
  options.variables = &*extra;
  CHECK(corbel::join(*chat->render(messages, options)) == "FalseTrueTrueTrue1");
  const auto variables = corbel::json::parse(R"({"messages": [1, 2]})");
  REQUIRE(variables.ok());
  CHECK(corbel::join(*chat->render(*variables)) == "TrueTrueFalseFalse2");
  const auto bare = ChatTemplate::compile("{{ tools is defined }}{{ bos_token is defined }}", "", "");
  REQUIRE(bare.ok());
  CHECK(corbel::join(*bare->render(Value::object())) == "FalseFalse");
  CHECK(bare->render(Value::array()).status().code() == Errc::kInvalidArgument);
}

TEST_CASE("the clock is the caller's", "[chat]") {
  const auto chat = ChatTemplate::compile("{{ strftime_now('%d %b %Y %H:%M:%S %j %a') }}", "", "");
  REQUIRE(chat.ok());
  const std::vector<Message> messages;
  RenderOptions options;
  options.now = 951'825'661;  // a leap day
  CHECK(corbel::join(*chat->render(messages, options)) == "29 Feb 2000 12:01:01 060 Tue");
  options.now = 4'133'894'400;  // the day before the year 2101
  CHECK(corbel::join(*chat->render(messages, options)) == "31 Dec 2100 00:00:00 365 Fri");
  options.now = -1;
  CHECK(chat->render(messages, options).status().code() == Errc::kTemplateError);
}

TEST_CASE("the final message can be continued", "[chat]") {
  const auto chat = ChatTemplate::compile(kChatMl, "", "");
  REQUIRE(chat.ok());
  const std::vector<Message> messages = {{"user", "Sing."}, {"assistant", "La la "}};
  RenderOptions options;
  options.continue_final_message = true;
  const auto out = chat->render(messages, options);
  REQUIRE(out.ok());
  CHECK(show(*out) == "<|im_start|>[user]\n[Sing.]<|im_end|>\n<|im_start|>[assistant]\n[La la ]");
  CHECK(chat->render(std::vector<Message>{}, options).status().code() == Errc::kInvalidArgument);
  const auto silent = ChatTemplate::compile("x", "", "");
  REQUIRE(silent.ok());
  CHECK(silent->render(messages, options).status().code() == Errc::kTemplateError);
  const auto parts = corbel::json::parse(
      R"({"continue_final_message": true, "messages": [{"content": [{"text": "a"}, {"text": "b"}]}]})");
  REQUIRE(parts.ok());
  const auto joined = ChatTemplate::compile(
      "{% for m in messages %}{{ m.content|map(attribute='text')|join('-') }}!{% endfor %}", "", "");
  REQUIRE(joined.ok());
  CHECK(show(*joined->render(*parts)) == "[a]-[b]");
}

TEST_CASE("variables that nest too deep", "[chat][hostile]") {
  Value deep = Value::array();
  for (int i = 0; i < 250; ++i) {
    Value outer = Value::array();
    outer.items().push_back(std::move(deep));
    deep = std::move(outer);
  }
  Value variables = Value::object();
  variables.members().emplace_back("x", std::move(deep));
  const auto chat = ChatTemplate::compile("{{ x }}", "", "");
  REQUIRE(chat.ok());
  CHECK(chat->render(variables).status().code() == Errc::kDepthExceeded);
  const auto blind = ChatTemplate::compile("y", "", "");
  REQUIRE(blind.ok());
  CHECK(blind->render(variables).ok());  // what the template does not mention is not looked at
}

TEST_CASE("content of many megabytes is fine, and cheap", "[chat]") {
  const std::string content(8u << 20, 'x');
  const std::vector<Message> messages = {{"user", content}};
  const auto chat = ChatTemplate::compile(kChatMl, "", "");
  REQUIRE(chat.ok());
  const auto out = chat->render(messages);
  REQUIRE(out.ok());
  CHECK(corbel::join(*out).size() == content.size() + 50);
}

TEST_CASE("one template renders in many threads at once", "[chat][threads]") {
  const auto chat = ChatTemplate::compile(
      std::string("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m('a' ~ messages[0].content) }}") + std::string(kChatMl),
      "", "");
  REQUIRE(chat.ok());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string content = "c" + std::to_string(t);
      const std::string expected =
          "<a" + content + "><|im_start|>user\n" + content + "<|im_end|>\n<|im_start|>assistant\n";
      const ChatTemplate copy = *chat;
      for (int i = 0; i < 200; ++i) {
        const auto out = copy.render(std::vector<Message>{{"user", content}});
        if (!out.ok() || corbel::join(*out) != expected) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("chat template: G107: a folder's templates by name, and which file goes first") {
  using corbel::Errc;
  const corbel::Context context;
  const auto templates = [&](const corbel_test::Files& more) {
    std::string header = "{}";
    corbel_test::Files files = more;
    files["config.json"] = "{}";
    files["model.safetensors"] = std::string("\x02\0\0\0\0\0\0\0", 8) + header;
    return corbel::read_chat_templates(
        corbel::Checkpoint::from_folder(std::make_shared<corbel_test::MemoryFolder>(files), context).value());
  };
  const auto names = [&](const corbel_test::Files& files) {
    const auto found = templates(files);
    std::string text;
    if (!found.ok()) return std::string(corbel::errc_name(found.status().code()));
    for (const corbel::NamedTemplate& one : *found) text += one.name + "=" + one.source + ";";
    return text;
  };
  const std::string config = "tokenizer_config.json";
  CHECK(names({}).empty());
  CHECK(names({{config, R"({"chat_template":"C"})"}}) == "default=C;");
  CHECK(names({{config, R"({"chat_template":null})"}}).empty());
  CHECK(names({{config, R"({"chat_template":[{"name":"rag","template":"R"},{"name":"default","template":"D"}]})"}}) ==
        "default=D;rag=R;");
  CHECK(names({{config, R"({"chat_template":"C"})"}, {"chat_template.jinja", "J"}}) == "default=J;");
  CHECK(names({{"chat_template.jinja", "J"}, {"additional_chat_templates/tool_use.jinja", "T"}}) ==
        "default=J;tool_use=T;");
  CHECK(names({{"chat_template.json", R"({"chat_template":"P"})"}}) == "default=P;");
  CHECK(names({{config, R"({"chat_template":"C"})"}, {"chat_template.json", R"({"chat_template":"P"})"}}) ==
        "default=C;");
  CHECK(names({{config, R"({"chat_template":7})"}}) == "type_mismatch");
  CHECK(names({{config, R"({"chat_template":[{"template":"D"}]})"}}) == "type_mismatch");
  CHECK(names({{config, R"({"chat_template":[{"name":"a"}]})"}}) == "type_mismatch");
  CHECK(names({{config, R"({"chat_template":[{"name":"a","template":"x"},{"name":"a","template":"y"}]})"}}) ==
        "duplicate");
  CHECK(names({{config, "{"}}) == "bad_json");
  CHECK(names({{"chat_template.jinja", std::string((1u << 20) + 1, 'x')}}) == "limit_exceeded");
  CHECK(names({{"chat_template.jinja", std::string(1u << 20, 'x')}}).size() > (1u << 20));
}
