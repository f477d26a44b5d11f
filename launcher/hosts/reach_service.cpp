#include "launcher/hosts/reach_service.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>

#include "framework/net/link_error.h"
#include "launcher/base/errors.h"
#include "launcher/base/piped_process.h"
#include "launcher/base/text.h"

namespace strait::hosts {
namespace {

using Clock = std::chrono::steady_clock;

// The destructor waits this long at most.
constexpr auto kReachTick = std::chrono::milliseconds(100);
// Below the launcher's timeouts of 60 and 120 s, so that it gets the cause and not a timeout.
constexpr auto kMeasureLimit = std::chrono::seconds(45);

net::Endpoint endpoint_of(const std::string& text) {
  const auto endpoint = net::Endpoint::parse(text);
  if (!endpoint) throw PathError(text + " is not an address of the form tcp://ADDRESS:PORT");
  return *endpoint;
}

// Loading libtorch from a slow disk takes most of it.
constexpr auto kSubprocessLimit = std::chrono::seconds(50);

std::string_view text_of(const net::Frame& frame) {
  return {static_cast<const char*>(static_cast<const void*>(frame.data())), frame.size()};
}

}  // namespace

ReachService::ReachService(std::unique_ptr<net::Link> link, net::NodeOptions node,
                           std::pair<int, int> ports, Measure measure)
    : link_(std::move(link)),
      node_(std::move(node)),
      ports_(std::move(ports)),
      measure_(std::move(measure)),
      thread_([this] { serve(); }) {}

ReachService::~ReachService() {
  leaving_ = true;
  thread_.join();
}

void ReachService::serve() {
  try {
    while (!leaving_) {
      const auto frame = link_->receive_until(Clock::now() + kReachTick);
      if (!frame) continue;
      const auto answer = execute(parse_reach_command(*frame));
      if (answer) link_->send(format(*answer));
    }
  } catch (const net::LinkError& error) {
    spdlog::info("the reach service has ended: {}", error.what());
  } catch (const base::MessageError& error) {
    spdlog::error("{}", error.what());
    link_->abort(net::LinkError(net::LinkError::Kind::aborted, error.what()));
  }
}

// Errors are answers: the launcher decides what they mean for the run.
std::optional<ReachAnswer> ReachService::execute(const ReachCommand& command) {
  try {
    return std::visit([this](const auto& known) { return answer(known); }, command);
  } catch (const std::exception& error) {
    const bool of_path = dynamic_cast<const PathError*>(&error) != nullptr;
    const std::string text = of_path ? error.what() : base::describe_failure(error).text;
    const bool answered =
        !std::holds_alternative<BindRelay>(command) && !std::holds_alternative<ClosePort>(command);
    if (answered) return CommandFailed{text};
    // It would be taken for the answer to the next command.
    spdlog::error("{}", text);
    return std::nullopt;
  }
}

std::optional<ReachAnswer> ReachService::answer(const OpenPort& command) {
  probe_links_.reset();  // its ports may be the only free ones
  probe_links_ = std::make_unique<ProbeLinks>(node_, ports_, command);
  return probe_links_->opened();
}

std::optional<ReachAnswer> ReachService::answer(const TryPaths& command) {
  const auto limit = std::chrono::duration<double>(command.limit_seconds);
  return PathsTried{probe_links().try_paths(
      command.targets, std::chrono::duration_cast<std::chrono::milliseconds>(limit))};
}

std::optional<ReachAnswer> ReachService::answer(const MeasureRoundTrip& command) {
  return RoundTripMeasured{probe_links().round_trip(command.target, static_cast<int>(command.count),
                                                    Clock::now() + kMeasureLimit)};
}

std::optional<ReachAnswer> ReachService::answer(const SendFlow& command) {
  probe_links().send_flow(command.to, command.endpoints, command.seconds,
                          Clock::now() + kMeasureLimit);
  return FlowSent{};
}

std::optional<ReachAnswer> ReachService::answer(const ReceiveFlow& command) {
  return FlowMeasured{
      probe_links().receive_flow(command.from, command.endpoints, Clock::now() + kMeasureLimit)};
}

std::optional<ReachAnswer> ReachService::answer(const MeasureCompute& command) {
  return measure_(command);
}

std::optional<ReachAnswer> ReachService::answer(const DialRelay& command) {
  return RelayDialled{relay_client().dial(endpoint_of(command.relay), command.token).text()};
}

std::optional<ReachAnswer> ReachService::answer(const BindRelay& command) {
  relay_client().bind(endpoint_of(command.relay), command.token, endpoint_of(command.stage));
  return std::nullopt;
}

std::optional<ReachAnswer> ReachService::answer(const ClosePort& /*command*/) {
  probe_links_.reset();
  return std::nullopt;
}

ProbeLinks& ReachService::probe_links() {
  if (!probe_links_) throw PathError("no port for probes is open on this host");
  return *probe_links_;
}

RelayClient& ReachService::relay_client() {
  if (!relay_client_) {
    relay_client_ =
        std::make_unique<RelayClient>([](const std::string& event) { spdlog::warn("{}", event); });
  }
  return *relay_client_;
}

ComputeMeasured measure_in_subprocess(const std::string& program, const MeasureCompute& command) {
  const auto deadline = std::chrono::steady_clock::now() + kSubprocessLimit;
  base::PipedProcess child({program, "--measure"});
  child.write(text_of(format(ReachCommand(command))), deadline);
  child.close_input();
  std::string line;
  if (child.read_line(line, deadline) != base::PipedProcess::ReadResult::line) {
    child.wait_until(deadline);
    throw base::UserError(
        base::ExitCode::internal,
        fmt::format("{} --measure has not answered: {}", program, base::printable(child.errors())));
  }
  const ReachAnswer answer = parse_reach_answer(std::as_bytes(std::span(line)));
  if (const auto* failed = std::get_if<CommandFailed>(&answer)) {
    throw base::UserError(base::ExitCode::internal, failed->text);
  }
  return std::get<ComputeMeasured>(answer);
}

}  // namespace strait::hosts
