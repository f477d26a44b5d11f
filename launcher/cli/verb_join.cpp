#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "framework/file_descriptor.h"
#include "launcher/base/read_all.h"
#include "launcher/cli/command_line.h"
#include "launcher/cli/verbs.h"

namespace strait::cli {

// Becomes the stage program, because a host has to do without libtorch's memory.
void join_run(std::string token_file) {
  std::string program = base::own_program().parent_path() / "strait-stage";
  std::string flag = "--join";
  const std::array<char*, 4> words{program.data(), flag.data(), token_file.data(), nullptr};
  ::execv(program.c_str(), words.data());
  throw base::UserError(base::ExitCode::mismatch,
                        "cannot run {}: {}; it belongs beside strait: install both again", program,
                        std::strerror(errno));
}

void join_run(const hosts::JoinTicket& ticket) {
  // A file in memory, because the ticket may not be on a command line, and this process cannot both
  // become another one and write to it.
  const FileDescriptor memory(::memfd_create("ticket", MFD_CLOEXEC));
  const std::string text = to_text(ticket);
  const bool written = memory.open() &&
                       base::write_all(memory.number(), std::as_bytes(std::span(text))) &&
                       ::lseek(memory.number(), 0, SEEK_SET) == 0 &&
                       ::dup2(memory.number(), STDIN_FILENO) == STDIN_FILENO;
  if (!written) {
    throw base::UserError(base::ExitCode::out_of_memory, "cannot pass the ticket on: {}",
                          std::strerror(errno));
  }
  join_run("-");
}

void add_join(CLI::App& cli, Command& command) {
  const auto token = std::make_shared<std::string>();
  CLI::App* verb =
      cli.add_subcommand("join", "on a host of a run: join it by the token that strait run wrote");
  verb->add_option("token", *token, "the token's file, or - for stdin")->required();
  verb->callback(
      [token, &command] { command.run = [token]() -> base::ExitCode { join_run(*token); }; });
}

}  // namespace strait::cli
