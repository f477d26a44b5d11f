#include "launcher/process/run_program.h"

#include <fmt/format.h>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/process/piped_process.h"

namespace strait::process {
namespace {

constexpr std::size_t kMostAnswer = 1U << 20U;

}  // namespace

std::string ProgramAnswer::complaint() const {
  const std::size_t end = err.find_last_not_of(" \n\r\t");
  if (end == std::string::npos) return "it " + status.sentence();
  const std::size_t before = err.find_last_of('\n', end);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return base::printable(err.substr(begin, end + 1 - begin));
}

ProgramAnswer run_program(const std::vector<std::string>& argv, std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  PipedProcess program(argv);
  program.close_input();
  ProgramAnswer answer;
  std::string line;
  // What is beyond the limit is read and forgotten: no program is stopped by a full pipe.
  while (program.read_line(line, deadline) == PipedProcess::Heard::line) {
    if (answer.out.size() + line.size() < kMostAnswer) answer.out += line + "\n";
  }
  const std::optional<ExitStatus> ended = program.wait_until(deadline);
  if (!ended) {
    throw base::UserError(
        base::ExitCode::stalled,
        fmt::format("{} has given no answer within {} s and was ended", argv[0], limit.count()));
  }
  answer.status = *ended;
  answer.err = program.errors();
  return answer;
}

}  // namespace strait::process
