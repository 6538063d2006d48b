// DecodeState: what a tokenizer remembers between the tokens of one text.
#pragma once

#include <corbel/config.hpp>

#include <cstddef>
#include <string>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

/// As new for every text. What is still held back at its end shows then (a run of byte pieces) or is no part of it.
struct DecodeState {
  struct Step {
    bool started = false;
    std::size_t count = 0;
    std::string held;  // text that only shows where more follows, or the token before
  };
  bool after_special = true;  ///< the token is the first, or follows a special piece
  std::vector<Step> steps;    ///< of a Decoder, one each
  std::string token;          ///< scratch memory
};

}  // namespace text
CORBEL_NAMESPACE_END
