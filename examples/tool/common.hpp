// What the verbs of the program `corbel` share: options, loading, output, and how failures end the program.
//
// A verb reports a failed piece of work by throwing corbel::Exception (what Result::value() does) or WorkError: main()
// prints one line and exits with 1. UsageError, like a mistake that CLI11 finds, exits with 2.
#pragma once

#include <corbel/corbel.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tool {

class WorkError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What main() runs once the arguments are understood.
using Action = std::function<void()>;

// One verb a file. Each adds its subcommand to `app`, which sets `action` when it is the one that was asked for.
void add_chat(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_convert(CLI::App& app, Action& action);
void add_tokenize(CLI::App& app, Action& action);
void add_render(CLI::App& app, Action& action);
void add_logits(CLI::App& app, Action& action);
void add_perplexity(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);

/// The options that every verb has.
struct RunOptions {
  std::string backend;  // empty: the best that this machine has
  std::string isa;      // empty: the highest level that this machine has
  std::string amx = "allow";
  std::string kv = "f16";
  std::string activations = "float";
  std::string packed_cache;  // empty: none
  std::string tuning = "measure";
  int threads = 0;  // 0: physical cores
};

/// The subcommand `name` with the common options; `run` gets called with nothing else to check.
CLI::App* add_verb(CLI::App& app, Action& action, const char* name, const char* description, RunOptions& options,
                   Action run);

/// For `->check()`: the whole text is one decimal number from `least` to `most`. (What CLI11 takes alone is more: an
/// empty text, hexadecimal and octal numbers, spaces.)
template <class T>
std::function<std::string(const std::string&)> number_in(T least, T most) {
  return [least, most](const std::string& text) {
    const char* const end = text.data() + text.size();
    const bool zeros = std::integral<T> && text.size() > 1 && text[0] == '0';
    T value{};
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    bool good = error == std::errc() && rest == end && !zeros && value >= least && value <= most;
    if constexpr (std::floating_point<T>) good = good && std::isfinite(value);
    if (good) return std::string();
    std::string range = "a finite number";
    if constexpr (std::integral<T>) range = "an integer from " + std::to_string(least) + " to " + std::to_string(most);
    return "must be " + range + ", and is \"" + text + "\"";
  };
}

/// "--activations float|scheme", for verbs that run a model.
void add_activations(CLI::App& verb, RunOptions& options);

/// One line for stderr that is no failure. Lines are held back until the work is done or print_notes() is called: a
/// verb that fails says one thing, why.
void note(std::string_view line);
void print_notes();
/// `text` as one line that a terminal can show.
std::string one_line(std::string_view text);

/// Warnings become notes.
corbel::Context make_context(const RunOptions& options);
corbel::KvType kv_type(const RunOptions& options);
/// "--role prompt|generated" as an option of a verb.
void add_role(CLI::App& verb, std::string& role);
corbel::Role role_from_name(std::string_view name);
/// Loads with a progress bar on stderr.
corbel::AnyModel load_model(const std::string& path, const RunOptions& options, const corbel::Context& context);

/// Throws the error of a call without a value.
void check(const corbel::Status& status);

/// A bar on stderr, drawn only where stderr is a terminal, and wiped at the end.
class ProgressBar {
 public:
  explicit ProgressBar(const char* label);
  ~ProgressBar() { finish(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void update(std::uint64_t done, std::uint64_t total);
  void finish();

 private:
  const char* label_;
  bool terminal_;
  int drawn_percent_ = -1;
};

/// A file that is written front to back (stdout where `path` is empty or "-"); close() reports what went wrong.
class OutFile {
 public:
  explicit OutFile(const std::string& path);
  ~OutFile();
  OutFile(const OutFile&) = delete;
  OutFile& operator=(const OutFile&) = delete;
  void write(std::span<const float> values);
  void close();

 private:
  std::string path_;
  std::FILE* file_;
};

/// Refuses an output that is one of the files that are read: `model`, a file or the documents and weights of a folder,
/// or `other` (a path, or empty).
void refuse_input_as_output(const std::string& out, const std::string& model, const std::string& other = {});

/// stdout, byte by byte as given.
void print(std::string_view text);
/// Errors of stdout that were not seen yet are seen here.
void flush_stdout();
std::string read_file(const std::string& path);
std::string read_stdin();

std::string ids_to_json(std::span<const corbel::TokenId> ids);
/// A JSON list of integers; `what` names the place in messages.
std::vector<corbel::TokenId> ids_from_json(const corbel::json::Value& list, const std::string& what);
corbel::json::Value parse_json(std::string_view text, const std::string& what);

/// A JSON string for one line of output: also what some readers take for a line's end is escaped (U+0085, U+2028,
/// U+2029).
std::string json_line_string(std::string_view text);

std::int32_t argmax(std::span<const float> logits);

/// Rows of logits that a batch should hold at most: 64 MiB of them, as a vocabulary can be large.
inline std::uint32_t rows_of_logits(std::uint32_t vocab) {
  return std::clamp<std::uint32_t>((16u << 20) / std::max(vocab, 1u), 16, 512);
}

/// Feeds `ids` to the end of `sequence` in pieces of at most `chunk` tokens and calls visit(index, logits) for each.
template <class B, class Visit>
void forward_all(corbel::Batch<B>& batch, corbel::Sequence<B>& sequence, std::span<const corbel::TokenId> ids,
                 std::size_t chunk, corbel::Role role, Visit visit) {
  for (std::size_t begin = 0; begin < ids.size(); begin += chunk) {
    const std::size_t count = std::min(chunk, ids.size() - begin);
    check(batch.add(sequence, ids.subspan(begin, count), role, corbel::Wanted::kAll));
    const corbel::Logits logits = batch.forward().value();
    for (std::size_t row = 0; row < count; ++row) visit(begin + row, logits.row(row));
  }
}

/// Feeds `ids` to the end of `sequence` in pieces of at most `chunk` tokens; the logits of the last one.
template <class B>
std::span<const float> forward_last(corbel::Batch<B>& batch, corbel::Sequence<B>& sequence,
                                    std::span<const corbel::TokenId> ids, std::size_t chunk, corbel::Role role) {
  corbel::Logits logits;
  for (std::size_t begin = 0; begin < ids.size(); begin += chunk) {
    const std::size_t count = std::min(chunk, ids.size() - begin);
    const bool last = begin + count == ids.size();
    check(batch.add(sequence, ids.subspan(begin, count), role, last ? corbel::Wanted::kLast : corbel::Wanted::kNone));
    logits = batch.forward().value();
  }
  return logits.row(0);
}

}  // namespace tool
