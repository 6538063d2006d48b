// The tokenizer keys of a GGUF file as the documents of a Hugging Face folder.
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/checkpoint/metadata.hpp>
#include <corbel/config.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/error.hpp>
#include <corbel/text/byte_level_bpe.hpp>
#include <corbel/text/pipeline_model.hpp>
#include <corbel/text/pretokenizer.hpp>
#include <corbel/text/sentencepiece_bpe.hpp>
#include <corbel/text/vocabulary.hpp>

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

class TokenizerDocumentWriter {
 public:
  explicit TokenizerDocumentWriter(const Metadata& metadata) : metadata_(metadata) {}

  /// tokenizer.json and tokenizer_config.json; the error says why there can be none.
  Result<std::vector<std::pair<std::string, std::string>>> write() {
    std::vector<std::pair<std::string, std::string>> documents;
    if (metadata_.find("tokenizer.huggingface.json") != nullptr) return kept_documents();
    CORBEL_ASSIGN_OR_RETURN(const std::string_view kind, metadata_.get_string("tokenizer.ggml.model"));
    using Read = Result<std::shared_ptr<const text::TokenizerModel>> (*)(const Metadata&, text::Vocabulary);
    using Write = Result<std::string> (TokenizerDocumentWriter::*)() const;
    constexpr std::tuple<std::string_view, Read, Write> kKinds[] = {
        {"gpt2", &text::ByteLevelBpe::from_metadata, &TokenizerDocumentWriter::byte_level},
        {"gemma4", &text::ByteLevelBpe::from_metadata, &TokenizerDocumentWriter::byte_level},
        {"llama", &text::SentencePieceBpe::from_metadata, &TokenizerDocumentWriter::sentence_piece},
        {"t5", &text::PipelineModel::unigram, &TokenizerDocumentWriter::unigram},
        {"bert", &text::PipelineModel::word_piece, &TokenizerDocumentWriter::word_piece},
    };
    const auto* const row = std::find_if(std::begin(kKinds), std::end(kKinds),
                                         [&](const auto& known) { return std::get<0>(known) == kind; });
    if (row == std::end(kKinds)) {
      return Status(Errc::kUnsupported, fmt::format("tokenizer.ggml.model: \"{}\" is not written as tokenizer.json",
                                                    corbel::detail::printable(kind, 64)));
    }
    CORBEL_ASSIGN_OR_RETURN(text::Vocabulary vocabulary, text::Vocabulary::from_metadata(metadata_));
    CORBEL_ASSIGN_OR_RETURN(model_, std::get<1>(*row)(metadata_, std::move(vocabulary)));
    CORBEL_RETURN_IF_ERROR(find_ends());
    Result<std::string> document = (this->*std::get<2>(*row))();
    if (!document.ok()) return document.status();
    documents.emplace_back("tokenizer.json", *std::move(document));
    documents.emplace_back("tokenizer_config.json", config());
    CORBEL_RETURN_IF_ERROR(check(documents));
    return documents;
  }

 private:
  static std::string quoted(std::string_view text) {
    std::string out;
    json::append_quoted(out, text);
    return out;
  }

  // What the file was made from. Documents that Corbel has no code for are others' to read; those that nobody can read
  // are not written.
  Result<std::vector<std::pair<std::string, std::string>>> kept_documents() const {
    std::vector<std::pair<std::string, std::string>> documents;
    for (const auto& [key, name] : {std::pair("tokenizer.huggingface.json", "tokenizer.json"),
                                    std::pair("corbel.tokenizer.config", "tokenizer_config.json"),
                                    std::pair("corbel.tokenizer.special_tokens_map", "special_tokens_map.json")}) {
      CORBEL_ASSIGN_OR_RETURN(const std::string_view text, metadata_.get_string_or(key, ""));
      if (!text.empty()) documents.emplace_back(name, text);
    }
    TokenizerDocuments texts;
    for (const auto& [name, text] : documents) {
      (name == "tokenizer.json"          ? texts.tokenizer_json
       : name == "tokenizer_config.json" ? texts.tokenizer_config
                                         : texts.special_tokens_map) = text;
    }
    const auto read = text::PipelineModel::from_documents(texts);
    if (!read.ok() && read.status().code() != Errc::kUnsupported)
      return read.status().with_place("metadata key \"tokenizer.huggingface.json\" and those with it");
    return documents;
  }

  std::string added_tokens() const {
    std::string out = "[";
    for (std::size_t at = 0; at < vocabulary().size(); ++at) {
      const auto id = static_cast<TokenId>(at);
      const text::PieceType type = vocabulary().type(id);
      const bool special = type == text::PieceType::kControl || type == text::PieceType::kUnknown;
      if ((!special && type != text::PieceType::kUserDefined) || vocabulary().piece(id).empty()) continue;
      out += fmt::format(
          "{}{{\"id\":{},\"content\":{},\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
          "\"normalized\":false,\"special\":{}}}",
          out.size() == 1 ? "" : ",", id, quoted(vocabulary().piece(id)), special);
    }
    return out + "]";
  }

  std::string pieces() const {
    std::string out = "{";
    for (std::size_t at = 0; at < vocabulary().size(); ++at) {
      if (at != 0) out += ',';
      json::append_quoted(out, vocabulary().piece(static_cast<TokenId>(at)));
      out += ':' + std::to_string(at);
    }
    return out + "}";
  }

  // Tokens that add_special puts around a text.
  Status find_ends() {
    constexpr std::string_view kText = "a";
    const text::TextSpan span = {kText.size(), true};
    std::uint64_t steps = 0;
    CORBEL_ASSIGN_OR_RETURN(const std::vector<TokenId> bare, model_->encode(kText, {&span, 1}, false, steps));
    CORBEL_ASSIGN_OR_RETURN(const std::vector<TokenId> all, model_->encode(kText, {&span, 1}, true, steps));
    const auto begin = std::search(all.begin(), all.end(), bare.begin(), bare.end());
    before_.assign(all.begin(), begin);
    if (begin != all.end()) after_.assign(begin + static_cast<std::ptrdiff_t>(bare.size()), all.end());
    return {};
  }

  std::string post_processor() const {
    std::string single = "[", tokens = "{";
    const auto add = [&](const std::vector<TokenId>& ids) {
      for (const TokenId id : ids) {
        const std::string name = quoted(vocabulary().piece(id));
        single +=
            fmt::format("{}{{\"SpecialToken\":{{\"id\":{},\"type_id\":0}}}}", single.size() == 1 ? "" : ",", name);
        if (tokens.find(name + ":") == std::string::npos)
          tokens += fmt::format("{}{}:{{\"id\":{},\"ids\":[{}],\"tokens\":[{}]}}", tokens.size() == 1 ? "" : ",", name,
                                name, id, name);
      }
    };
    add(before_);
    single += std::string(single.size() == 1 ? "" : ",") + R"({"Sequence":{"id":"A","type_id":0}})";
    add(after_);
    if (tokens.size() == 1) return "null";
    return fmt::format(
        "{{\"type\":\"TemplateProcessing\",\"single\":{}],\"pair\":[{{\"Sequence\":{{\"id\":\"A\","
        "\"type_id\":0}}}},{{\"Sequence\":{{\"id\":\"B\",\"type_id\":1}}}}],\"special_tokens\":{}}}}}",
        single, tokens);
  }

  // `model`: members after its type.
  std::string whole(std::string_view normalizer, std::string_view cutter, std::string_view decoder,
                    std::string_view type, std::string_view model) const {
    return fmt::format(
        "{{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":{},\"normalizer\":{},"
        "\"pre_tokenizer\":{},\"post_processor\":{},\"decoder\":{},\"model\":{{\"type\":\"{}\",{}}}}}",
        added_tokens(), normalizer, cutter, post_processor(), decoder, type, model);
  }

  std::string unknown_piece() const {
    return model_->unknown() < 0 ? std::string("null") : quoted(vocabulary().piece(model_->unknown()));
  }

  std::string bpe(std::string_view more, std::string_view merges) const {
    return fmt::format(
        "\"dropout\":null,\"unk_token\":{},\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,{},"
        "\"vocab\":{},\"merges\":{}",
        unknown_piece(), more, pieces(), merges);
  }

  Result<std::string> byte_level() const {
    CORBEL_ASSIGN_OR_RETURN(const std::string_view name, metadata_.get_string_or("tokenizer.ggml.pre", "default"));
    const text::Pretokenizer* row = text::find_pretokenizer(name);
    if (kind_is("gemma4")) row = text::find_pretokenizer("gemma4");
    if (row == nullptr) {
      return Status(Errc::kUnsupported, fmt::format("tokenizer.ggml.pre: \"{}\" is not written as tokenizer.json",
                                                    corbel::detail::printable(name, 64)));
    }
    std::string cutter = R"({"type":"Sequence","pretokenizers":[)";
    for (const std::string_view pattern : row->patterns) {
      if (pattern.empty()) continue;
      cutter += fmt::format(
          "{{\"type\":\"Split\",\"pattern\":{{\"Regex\":{}}},\"behavior\":\"Isolated\","
          "\"invert\":false}},",
          quoted(pattern));
    }
    constexpr std::string_view kBytes =
        R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false})";
    if (row->byte_level) cutter += kBytes;
    if (cutter.back() == ',') cutter.pop_back();
    cutter += "]}";
    const MetaValue* merges = metadata_.find("tokenizer.ggml.merges");
    std::string list = "[";
    for (std::size_t at = 0; merges != nullptr && at < merges->size(); ++at) {
      const std::string_view merge = merges->string_at(at);
      const std::size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos) continue;
      const std::string joined = std::string(merge.substr(0, space)) + std::string(merge.substr(space + 1));
      // A merge whose result is no piece is never made.
      if (vocabulary().find(joined) < 0) continue;
      add_merge(list, merge.substr(0, space), merge.substr(space + 1));
    }
    bool fallback = false;
    for (int byte = 0; byte < 256 && !row->byte_level && !fallback; ++byte)
      fallback = vocabulary().find(fmt::format("<0x{:02X}>", byte)) >= 0;
    const std::string more = fmt::format("\"fuse_unk\":{},\"byte_fallback\":{},\"ignore_merges\":{}", !row->byte_level,
                                         fallback, row->whole_words);
    const std::string model = bpe(more, list + "]");
    if (row->byte_level) return whole("null", cutter, kBytes, "BPE", model);
    return whole(R"({"type":"Replace","pattern":{"String":" "},"content":"\u2581"})", cutter, spaced_decoder(false),
                 "BPE", model);
  }

  bool kind_is(std::string_view kind) const {
    const Result<std::string_view> own = metadata_.get_string("tokenizer.ggml.model");
    return own.ok() && *own == kind;
  }

  // U+2581 for spaces and pieces for bytes; `strip`: without the space that was put before the text.
  static std::string spaced_decoder(bool strip) {
    return fmt::format(
        R"({{"type":"Sequence","decoders":[{{"type":"Replace","pattern":{{"String":"\u2581"}},"content":" "}},{{"type":"ByteFallback"}},{{"type":"Fuse"}}{}]}})",
        strip ? R"(,{"type":"Strip","content":" ","start":1,"stop":0})" : "");
  }

  // The parts are those that PipelineModel::unigram() reads from the keys.
  Result<std::string> unigram() const {
    CORBEL_ASSIGN_OR_RETURN(const bool prefix, metadata_.get_bool_or("tokenizer.ggml.add_space_prefix", true));
    CORBEL_ASSIGN_OR_RETURN(const bool squeeze, metadata_.get_bool_or("tokenizer.ggml.remove_extra_whitespaces", true));
    std::string steps;
    if (const MetaValue* map = metadata_.find("tokenizer.ggml.precompiled_charsmap");
        map != nullptr && map->size() != 0)
      steps = fmt::format(R"({{"type":"Precompiled","precompiled_charsmap":"{}"}},)", text::base64(map->raw()));
    if (squeeze) {
      steps += R"({"type":"Strip","strip_left":true,"strip_right":true},)"
               R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "},)";
    }
    if (!steps.empty()) steps.pop_back();
    const std::string normalizer =
        steps.empty() ? "null" : fmt::format(R"({{"type":"Sequence","normalizers":[{}]}})", steps);
    const std::string space =
        fmt::format(R"({{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"{}","split":true}})",
                    prefix ? "always" : "never");
    const MetaValue* const scores = metadata_.find("tokenizer.ggml.scores");
    double lowest = 0;
    for (std::size_t at = 0; at < vocabulary().size(); ++at) lowest = std::min(lowest, scores->float_at(at));
    std::string list = "[";
    for (std::size_t at = 0; at < vocabulary().size(); ++at) {
      const auto id = static_cast<TokenId>(at);
      // tokenizer.json has no unused pieces: one that costs more than any others is never chosen.
      constexpr double kNever = 1e6;
      const double score = vocabulary().type(id) == text::PieceType::kUnused ? lowest - kNever : scores->float_at(at);
      list += fmt::format("{}[{},{}]", at == 0 ? "" : ",", quoted(vocabulary().piece(id)), score);
    }
    const std::string unknown = model_->unknown() < 0 ? "null" : std::to_string(model_->unknown());
    return whole(normalizer, space, space, "Unigram",
                 fmt::format("\"unk_id\":{},\"vocab\":{}],\"byte_fallback\":false", unknown, list));
  }

  // Of GGUF's pieces the first of a word starts with U+2581, of the document's all others with "##".
  Result<std::string> word_piece() const {
    CORBEL_ASSIGN_OR_RETURN(const bool lowercase, metadata_.get_bool_or("tokenizer.ggml.normalizer.lowercase", true));
    constexpr std::string_view kFirst = "\xE2\x96\x81";
    std::string list = "{";
    for (std::size_t at = 0; at < vocabulary().size(); ++at) {
      const std::string_view piece = vocabulary().piece(static_cast<TokenId>(at));
      const bool same = vocabulary().type(static_cast<TokenId>(at)) != text::PieceType::kNormal ||
                        (piece.starts_with('[') && piece.ends_with(']'));  // "[unused7]", which no text gives
      std::string own(piece);
      if (piece.starts_with(kFirst) && !same) {
        own.erase(0, kFirst.size());
      } else if (!same) {
        own.insert(0, "##");
      }
      list += fmt::format("{}{}:{}", at == 0 ? "" : ",", quoted(own), at);
    }
    return whole(
        fmt::format(
            R"({{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":{0},"lowercase":{0}}})",
            lowercase),
        R"({"type":"BertPreTokenizer"})", R"({"type":"WordPiece","prefix":"##","cleanup":false})", "WordPiece",
        fmt::format(
            "\"unk_token\":{},\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":100,\"vocab\":{}}}",
            unknown_piece(), list));
  }

  static void add_merge(std::string& list, std::string_view left, std::string_view right) {
    list += list.size() == 1 ? "[" : ",[";
    json::append_quoted(list, left);
    list += ',';
    json::append_quoted(list, right);
    list += ']';
  }

  // Scores in place of merges: of two halves the pair whose piece has the higher score comes together first.
  Result<std::string> sentence_piece() const {
    const MetaValue* scores = metadata_.find("tokenizer.ggml.scores");
    std::vector<std::tuple<double, TokenId, std::size_t>> order;  // -score, result, bytes of the left half
    for (std::size_t at = 0; at < vocabulary().size(); ++at) {
      const auto id = static_cast<TokenId>(at);
      const std::string_view piece = vocabulary().piece(id);
      if (!vocabulary().is_text(id) || vocabulary().find(piece) != id) continue;
      for (std::size_t cut = 1; cut < piece.size(); ++cut) {
        if ((static_cast<unsigned char>(piece[cut]) & 0xC0u) == 0x80u) continue;
        const TokenId left = vocabulary().find(piece.substr(0, cut)), right = vocabulary().find(piece.substr(cut));
        if (left < 0 || right < 0 || !vocabulary().is_text(left) || !vocabulary().is_text(right)) continue;
        order.emplace_back(-scores->float_at(at), id, cut);
      }
    }
    std::sort(order.begin(), order.end());
    std::string list = "[";
    for (const auto& [score, id, cut] : order) {
      const std::string_view piece = vocabulary().piece(id);
      add_merge(list, piece.substr(0, cut), piece.substr(cut));
    }
    CORBEL_ASSIGN_OR_RETURN(const bool prefix, metadata_.get_bool_or("tokenizer.ggml.add_space_prefix", true));
    const std::string normalizer = fmt::format(
        R"({{"type":"Sequence","normalizers":[{}{{"type":"Replace","pattern":{{"String":" "}},"content":"\u2581"}}]}})",
        prefix ? R"({"type":"Prepend","prepend":"\u2581"},)" : "");
    const bool bytes = vocabulary().find("<0x41>") >= 0;
    const std::string more = fmt::format("\"fuse_unk\":true,\"byte_fallback\":{},\"ignore_merges\":false", bytes);
    return whole(normalizer, "null", spaced_decoder(prefix), "BPE", bpe(more, list + "]"));
  }

  std::string config() const {
    std::string out = "{\"clean_up_tokenization_spaces\":false,\"tokenizer_class\":\"PreTrainedTokenizerFast\"";
    // They would take away tokens of other roles, as "[CLS]" has.
    if (model_->adds_bos() == !before_.empty() && model_->adds_eos() == !after_.empty())
      out += fmt::format(",\"add_bos_token\":{},\"add_eos_token\":{}", model_->adds_bos(), model_->adds_eos());
    // A piece with a role would count in any text: files name ordinary pieces where they have nothing else.
    const auto role = [&](const char* name, TokenId id) {
      if (id >= 0 && vocabulary().type(id) == text::PieceType::kControl)
        out += fmt::format(",\"{}\":{}", name, quoted(vocabulary().piece(id)));
    };
    role("bos_token", model_->bos());
    role("eos_token", model_->eos());
    role("unk_token", model_->unknown());
    for (const auto& [key, name] : {std::pair("padding", "pad_token"), std::pair("seperator", "sep_token"),
                                    std::pair("cls", "cls_token"), std::pair("mask", "mask_token")}) {
      const Result<std::uint64_t> id = metadata_.get_uint(fmt::format("tokenizer.ggml.{}_token_id", key));
      if (id.ok() && *id < vocabulary().size()) role(name, static_cast<TokenId>(*id));
    }
    return out + "}\n";
  }

  // The documents must give the ids that the keys give.
  Status check(const std::vector<std::pair<std::string, std::string>>& documents) const {
    TokenizerDocuments texts;
    texts.tokenizer_json = documents[0].second;
    texts.tokenizer_config = documents[1].second;
    const auto written = text::PipelineModel::from_documents(texts);
    if (!written.ok()) return written.status().with_place("as tokenizer.json");
    std::vector<std::string> probes = {"",
                                       " ",
                                       "Hello world",
                                       " Hello  world \n\n\t x1234567890",
                                       "It's 3.14, isn't it?",
                                       "f(x) { return x<<2; } // ok",
                                       "na\xC3\xAFve \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80"};
    const std::size_t step = std::max<std::size_t>(1, vocabulary().size() / 2000);
    for (std::size_t at = 0; at < vocabulary().size(); at += step) {
      const auto id = static_cast<TokenId>(at);
      std::string piece;
      text::DecodeState state;
      model_->append_bytes(id, true, state, piece);
      if (corbel::detail::is_utf8(piece)) probes.push_back("a " + piece + " b" + piece);
    }
    for (const std::string& probe : probes) {
      for (const bool literal : {false, true}) {
        const text::TextSpan span = {probe.size(), literal};
        std::uint64_t steps = 0;
        const Result<std::vector<TokenId>> ours = model_->encode(probe, {&span, 1}, true, steps);
        const Result<std::vector<TokenId>> theirs = (*written)->encode(probe, {&span, 1}, true, steps);
        if (ours.ok() && theirs.ok() && *ours == *theirs) continue;
        return {Errc::kUnsupported, fmt::format("tokenizer.json would give other ids, for example for {}",
                                                quoted(corbel::detail::printable(probe, 64)))};
      }
    }
    return {};
  }

  const text::Vocabulary& vocabulary() const noexcept { return model_->vocabulary(); }

  const Metadata& metadata_;
  std::shared_ptr<const text::TokenizerModel> model_;
  std::vector<TokenId> before_, after_;
};

}  // namespace detail
}  // namespace models
CORBEL_NAMESPACE_END
