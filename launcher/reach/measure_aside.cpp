#include "launcher/reach/measure_aside.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>

#include "launcher/base/printable_text.h"
#include "launcher/process/piped_process.h"
#include "launcher/base/user_error.h"

namespace strait::reach {
namespace {

constexpr auto kAsideLimit = std::chrono::seconds(50);

std::string_view text_of(const net::Frame& frame) {
  return {static_cast<const char*>(static_cast<const void*>(frame.data())), frame.size()};
}

}  // namespace

ComputeMeasured measure_aside(const std::string& program, const MeasureCompute& order) {
  const auto deadline = std::chrono::steady_clock::now() + kAsideLimit;
  process::PipedProcess aside({program, "--measure"});
  const net::Frame question = format(ReachOrder(order));
  aside.write(text_of(question), deadline);
  aside.close_input();
  std::string line;
  if (aside.read_line(line, deadline) != process::PipedProcess::Heard::line) {
    aside.wait_until(deadline);
    throw base::UserError(base::ExitCode::internal, fmt::format("{} --measure has not answered: {}", program,
                                                    base::printable(aside.errors())));
  }
  const ReachAnswer answer = parse_reach_answer(std::as_bytes(std::span(line)));
  if (const auto* failed = std::get_if<OrderFailed>(&answer)) {
    throw base::UserError(base::ExitCode::internal, failed->text);
  }
  return std::get<ComputeMeasured>(answer);
}

}  // namespace strait::reach
