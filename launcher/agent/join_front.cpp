#include "launcher/agent/join_front.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "framework/store/file_descriptor.h"
#include "launcher/base/build_id.h"
#include "launcher/agent/keeper.h"
#include "launcher/base/read_all.h"
#include "launcher/base/user_error.h"

namespace strait::agent {
namespace {

constexpr std::size_t kMostToken = 16U << 20U;
constexpr std::chrono::seconds kTokenLimit{60};

std::string token_text(const std::string& token) {
  if (token == "-")
    return base::read_all(STDIN_FILENO, "the run token on stdin", kMostToken, kTokenLimit);
  const store::FileDescriptor file(::open(token.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) {
    throw base::UserError(base::ExitCode::bad_input,
                    fmt::format("cannot read the run token {}: {}; strait run writes one for each "
                                "host while it waits for them",
                                token, std::strerror(errno)));
  }
  return base::read_all(file.number(), "the run token " + token, kMostToken, kTokenLimit);
}

}  // namespace

base::ExitCode join_run(const std::string& token) {
  try {
    const hosts::KeeperJob job = hosts::parse_keeper_job(token_text(token));
    if (job.build != base::build_id()) {
      throw base::UserError(base::ExitCode::mismatch,
                      fmt::format("the run token is of build {}, but this is build {}; install the "
                                  "launcher's build here",
                                  job.build, base::build_id()));
    }
    return run_keeper(job);
  } catch (const base::UserError& error) {
    spdlog::error("{}", error.what());
    return error.code();
  }
}

}  // namespace strait::agent
