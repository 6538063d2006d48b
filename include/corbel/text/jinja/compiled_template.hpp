// What a ChatTemplate shares between its copies.
#pragma once

#include <corbel/chat.hpp>
#include <corbel/config.hpp>
#include <corbel/text/jinja/program.hpp>

CORBEL_NAMESPACE_BEGIN
namespace text {

class CompiledTemplate {
 public:
  CompiledTemplate(jinja::Program program, std::string_view bos_token, std::string_view eos_token,
                   const TemplateLimits& limits)
      : program_(std::move(program)),
        bos_token_(jinja::Value::string(bos_token)),
        eos_token_(jinja::Value::string(eos_token)),
        limits_(limits) {}

  /// Either `messages` or `options.variables` (or both) may be given; see ChatTemplate::render.
  Result<std::vector<PromptSegment>> render(const std::span<const Message>* messages,
                                            const RenderOptions& options) const;

 private:
  jinja::Program program_;
  jinja::Value bos_token_;
  jinja::Value eos_token_;
  TemplateLimits limits_;
};

}  // namespace text
CORBEL_NAMESPACE_END
