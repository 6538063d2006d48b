// Target jinja_render: a template and its variables. A rendering spends exactly the fuel that it needs, keeps to its
// output limit and to memory in proportion to its fuel, and ends in the same way every time.
#include <corbel/chat.hpp>
#include <corbel/text/jinja/compiler.hpp>
#include <corbel/text/jinja/machine.hpp>

#include "fuzz/fuzz.hpp"
#include "fuzz/mutator.hpp"

using namespace corbel;
using namespace corbel_fuzz;

namespace {

constexpr std::uint64_t kFuel = 3000, kOutputBytes = 4096;
constexpr std::uint32_t kDepth = 40;
constexpr std::int64_t kNow = 1767312000;

struct Outcome {
  Status status;
  std::string text;
  std::uint64_t used = 0;
};

Outcome render(const text::jinja::Program& program, const json::Value& variables, std::uint64_t fuel) {
  using namespace text::jinja;
  Outcome outcome;
  Runtime runtime(fuel, kNow);
  Machine machine(program, runtime, kOutputBytes, kDepth);
  for (const auto& [name, member] : variables.members()) {
    text::jinja::Value value;
    if (!from_json(runtime, member, name == "messages", value)) {
      outcome.status = runtime.status();
      return outcome;
    }
    machine.define(name, std::move(value));
  }
  if (machine.run()) {
    outcome.text = machine.output().bytes();
    std::size_t end = 0;
    for (const ByteRange& range : machine.output().content()) {
      FUZZ_CHECK(range.begin >= end && range.end > range.begin && range.end <= outcome.text.size(), "");
      end = range.end;
    }
  }
  outcome.status = runtime.status();
  outcome.used = fuel - runtime.fuel();
  return outcome;
}

// The first NUL ends the template; what follows are the variables, if it is a JSON object.
std::pair<std::string_view, json::Value> split(std::string_view input) {
  const std::size_t end = input.find('\0');
  if (end != input.npos) {
    auto variables = json::parse(input.substr(end + 1));
    if (variables.ok() && variables->is_object()) return {input.substr(0, end), *std::move(variables)};
  }
  static const json::Value kUsual =
      json::parse(R"({"messages": [{"role": "system", "content": "a <b> \u00e4"}, {"role": "user", "content": "Hi"}],)"
                  R"("tools": [{"type": "function", "n": 1.5, "list": [1, true, null]}], "x": "text", "n": 3})")
          .value();
  return {input.substr(0, end), kUsual};
}

bool mutate_template(Random& random, std::string& input) {
  const std::size_t end = input.find('\0');
  if (end == input.npos || random.one_in(2)) return false;
  std::string variables = input.substr(end + 1);
  if (!mutate_json(random, variables)) return false;
  input = input.substr(0, end + 1) + variables;
  return true;
}

}  // namespace

CORBEL_FUZZ_MUTATOR_FUNCTION(mutate_template)

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto [source, variables] = split(text_of(data, size));
  const AllocationBound bound((std::size_t{1} << 20) + 256 * size);
  const auto program = text::jinja::compile_program(source, kDepth);
  check_status(program.status());
  const auto chat = ChatTemplate::compile(source, "", "", {.fuel = kFuel, .output_bytes = kOutputBytes, .depth = kDepth});
  FUZZ_CHECK(chat.status().code() == program.status().code(), chat.status().message());
  if (!program.ok()) return 0;

  const std::uint64_t before = allocated_bytes();
  const Outcome first = render(*program, variables, kFuel);
  const std::uint64_t memory = allocated_bytes() - before;
  check_status(first.status);
  FUZZ_CHECK(first.text.size() <= kOutputBytes, first.text);
  FUZZ_CHECK(memory <= (1u << 20) + 64 * size + 256 * kFuel, std::to_string(memory));
  if (detail::is_utf8(source)) FUZZ_CHECK(detail::is_utf8(first.text), first.text);

  const Outcome again = render(*program, variables, first.status.ok() ? first.used : kFuel);
  FUZZ_CHECK(again.status.code() == first.status.code() && again.status.message() == first.status.message(),
             again.status.message());
  FUZZ_CHECK(again.text == first.text, again.text);
  if (first.status.ok() && first.used > 0) {
    const Outcome starved = render(*program, variables, first.used - 1);
    FUZZ_CHECK(starved.status.code() == Errc::kTemplateBudget, starved.status.message());
  }
  // The same through the public interface, which adds what a conversation defines.
  const auto segments = chat->render(variables, kNow);
  check_status(segments.status());
  if (segments.ok()) FUZZ_CHECK(join(*segments).size() <= kOutputBytes, "");
  return 0;
}
