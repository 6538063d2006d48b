// Target detok_stream: any ids, pushed one by one, give the bytes of decode() as valid UTF-8, wherever the stream ends.
#include <corbel/tokenizer.hpp>

#include "fuzz/fuzz.hpp"
#include "fuzz/tokenizer_checks.hpp"
#include "support/tiny_vocabulary.hpp"

using namespace corbel;
using namespace corbel_fuzz;

namespace {

Tokenizer sentence_piece(bool prefix) {
  Metadata metadata = corbel_test::sentence_piece().metadata();
  metadata.set("tokenizer.ggml.add_space_prefix", MetaValue::from_bool(prefix));
  return Tokenizer::from_metadata(metadata).value();
}

}  // namespace

// The first byte chooses the tokenizer and whether control tokens are shown, the others are ids: below 128 one byte
// from the front of the vocabulary, else two bytes from all of it and a little more.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Tokenizer tokenizers[] = {corbel_test::make(corbel_test::byte_level()), sentence_piece(true),
                                         sentence_piece(false)};
  Input input(data, size);
  const std::uint32_t choice = input.byte();
  const Tokenizer& tokenizer = tokenizers[choice / 2 % 3];
  const bool special = choice % 2 == 1;
  std::vector<TokenId> ids;
  StreamDecoder stream(tokenizer, {special});
  std::string joined, expected;
  std::vector<TokenId> part;
  while (input.remaining() > 0) {
    const std::uint32_t first = input.byte();
    const auto id = static_cast<TokenId>(first < 0x80 ? first : ((first & 0x7F) << 8 | input.byte()) % (tokenizer.size() + 8));
    if (id == static_cast<TokenId>(tokenizer.size())) {  // ends this stream; the decoder is then as new
      joined += stream.finish();
      expected += repaired(tokenizer.decode(part, {special}).value());
      part.clear();
      continue;
    }
    const Result<std::string> piece = stream.push(id);
    if (static_cast<std::size_t>(id) > tokenizer.size()) {
      FUZZ_CHECK(piece.status().code() == Errc::kInvalidArgument, "");
      continue;
    }
    FUZZ_CHECK(piece.ok() && detail::is_utf8(*piece), piece.status().message());
    joined += *piece;
    part.push_back(id);
    ids.push_back(id);
  }
  joined += stream.finish();
  expected += repaired(tokenizer.decode(part, {special}).value());
  FUZZ_CHECK(joined == expected, joined);
  check_stream(tokenizer, ids, special);
  return 0;
}
