#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "launcher/base/errors.h"
#include "launcher/base/own_program.h"
#include "launcher/cli/verbs.h"

namespace strait::cli {
namespace {

// Becomes the stage program, because an agent has to do without libtorch's memory.
base::ExitCode join_run(std::string token) {
  std::string program = base::own_program().parent_path() / "strait-stage";
  std::string flag = "--join";
  const std::array<char*, 4> words{program.data(), flag.data(), token.data(), nullptr};
  ::execv(program.c_str(), words.data());
  throw base::UserError(base::ExitCode::mismatch,
                        fmt::format("cannot run {}: {}; it belongs beside strait: install both "
                                    "again",
                                    program, std::strerror(errno)));
}

}  // namespace

void add_join(CLI::App& cli, Command& command) {
  const auto token = std::make_shared<std::string>();
  CLI::App* verb =
      cli.add_subcommand("join", "on a host of a run: join it by the token that strait run wrote");
  verb->add_option("token", *token, "the token's file, or - for stdin")->required();
  verb->callback([token, &command] { command = [token] { return join_run(*token); }; });
}

}  // namespace strait::cli
