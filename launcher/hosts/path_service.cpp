#include "launcher/hosts/path_service.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <span>
#include <string_view>

#include "launcher/base/errors.h"
#include "launcher/base/piped_process.h"
#include "launcher/base/text.h"

namespace strait::hosts {
namespace {

using Clock = std::chrono::steady_clock;

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

AgentMessage PathService::perform(const PathRequest& request) {
  try {
    return std::visit([this](const auto& known) { return reply_to(known); }, request);
  } catch (const PathError& error) {
    return Failure{base::ExitCode::peer_lost, error.what()};
  } catch (const std::exception& error) {
    return base::describe_failure(error);
  }
}

AgentMessage PathService::reply_to(const OpenPort& request) {
  probe_links_.reset();  // its ports may be the only free ones
  if (request.addresses.empty()) return Done{};
  probe_links_ = std::make_unique<ProbeLinks>(node_, ports_, request);
  return probe_links_->opened();
}

AgentMessage PathService::reply_to(const TryPaths& request) {
  const std::chrono::duration<double> limit(request.limit_seconds);
  return PathsTried{probe_links().try_paths(
      request.targets, std::chrono::duration_cast<std::chrono::milliseconds>(limit),
      static_cast<int>(request.pings))};
}

AgentMessage PathService::reply_to(const SendFlow& request) {
  probe_links().send_flow(request.to, request.endpoints, request.seconds,
                          Clock::now() + kMeasureLimit);
  return Done{};
}

AgentMessage PathService::reply_to(const ReceiveFlow& request) {
  return FlowMeasured{
      probe_links().receive_flow(request.from, request.endpoints, Clock::now() + kMeasureLimit)};
}

AgentMessage PathService::reply_to(const DialRelay& request) {
  return ListensAt{relay_client().dial(endpoint_of(request.relay), request.token).text()};
}

AgentMessage PathService::reply_to(const BindRelay& request) {
  relay_client().bind(endpoint_of(request.relay), request.token, endpoint_of(request.stage));
  return Done{};
}

ProbeLinks& PathService::probe_links() {
  if (!probe_links_) throw PathError("no port for probes is open on this host");
  return *probe_links_;
}

RelayClient& PathService::relay_client() {
  if (!relay_client_) {
    relay_client_ =
        std::make_unique<RelayClient>([](const std::string& event) { spdlog::warn("{}", event); });
  }
  return *relay_client_;
}

ComputeMeasured measure_in_subprocess(const std::string& program, const MeasureCompute& request) {
  const auto deadline = std::chrono::steady_clock::now() + kSubprocessLimit;
  base::PipedProcess child({program, "--measure"});
  child.write(text_of(format(request)), deadline);
  child.close_input();
  std::string line;
  if (child.read_line(line, deadline) != base::PipedProcess::ReadResult::line) {
    child.wait_until(deadline);
    throw base::UserError(
        base::ExitCode::internal,
        fmt::format("{} --measure has not answered: {}", program, base::printable(child.errors())));
  }
  const AgentMessage reply = parse_agent_message(std::as_bytes(std::span(line))).content;
  if (const auto* failed = std::get_if<Failure>(&reply)) {
    throw base::UserError(failed->code, failed->text);
  }
  return std::get<ComputeMeasured>(reply);
}

}  // namespace strait::hosts
