// The program `corbel`: results on stdout, all else on stderr; exit code 0, 1 (the work failed) or 2 (wrong usage).
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <new>
#include <unistd.h>

#include "common.hpp"

namespace {

int fail(int exit_code, std::string_view message) {
  std::fflush(stdout);
  std::fprintf(stderr, "corbel: %s\n", tool::one_line(message).c_str());
  return exit_code;
}

/// What stdio still holds goes out; the exit code.
int end_output() {
  if (std::fflush(stdout) == 0) return 0;
  return fail(1, std::string("writing to stdout failed: ") + std::strerror(errno));
}

/// CLI11's messages, on one line.
std::string without_ends(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

int run(int argc, char** argv) {
  CLI::App app("Language models on your own machine", "corbel");
  app.require_subcommand(1);
  app.set_version_flag("--version", [] {
    const corbel::BuildInfo& info = corbel::build_info();
    return std::string("corbel ") + info.version + " (" + info.mode + ", " + info.compiler + "; backends " +
           info.backends + "; cpu levels " + info.isa_levels + ")";
  });
  tool::Action action;
  tool::add_chat(app, action);
  tool::add_inspect(app, action);
  tool::add_convert(app, action);
  tool::add_tokenize(app, action);
  tool::add_render(app, action);
  tool::add_logits(app, action);
  tool::add_perplexity(app, action);
  tool::add_bench(app, action);
  const auto is_asked_for = [&](const CLI::App* verb) { return verb->get_name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(is_asked_for).empty())
    return fail(2, "no verb \"" + std::string(argv[1]) + "\" (corbel --help)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    app.exit(help);
    return std::cout.flush() ? end_output() : fail(1, "writing to stdout failed");
  } catch (const CLI::Error& error) {
    return fail(2, without_ends(error.what()) + " (corbel --help, corbel VERB --help)");
  }
  action();
  tool::print_notes();
  return end_output();
}

/// Standard streams that the caller closed become /dev/null: else the next file that is opened would take their place.
void open_standard_streams() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  signal(SIGXFSZ, SIG_IGN);  // a file too large is then an error of the write
  try {
    return run(argc, argv);
  } catch (const tool::UsageError& error) {
    return fail(2, error.what());
  } catch (const std::bad_alloc&) {
    return fail(1, "out of memory");
  } catch (const std::exception& error) {
    return fail(1, error.what());
  }
}
