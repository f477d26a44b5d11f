#include "launcher/agent/agent_transfer.h"

#include <spdlog/spdlog.h>

#include "launcher/hosts/agent_message.h"
#include "launcher/transfer/transfer_peers.h"

namespace strait::agent {
namespace {

// With more hosts, a link to every one of them costs more than it saves.
constexpr std::size_t kMaxPeers = 32;

}  // namespace

AgentTransfer::AgentTransfer(net::Node& node, const hosts::AgentJob& job,
                             const std::filesystem::path& directory, const std::string& address)
    : transfer_agent_(transfer_options(node, job, directory)) {
  const net::ProcessName launcher = net::ProcessName::coordinator();
  transfer_agent_.add_peer(
      launcher, "the launcher",
      node.connect(job.endpoints.at(hosts::kTransferService),
                   transfer::transfer_link(launcher, job.name(), launcher, job.launcher_key,
                                           std::chrono::seconds(job.hold))));
  if (job.agent_keys.size() > 1 && job.agent_keys.size() <= kMaxPeers) {
    listen(node, job, address);
  }
}

transfer::TransferAgentOptions AgentTransfer::transfer_options(
    net::Node& node, const hosts::AgentJob& job, const std::filesystem::path& directory) {
  transfer::TransferAgentOptions options;
  options.store = directory / "content";
  options.accepts_commands = true;
  options.upload_bytes_per_second = transfer::bytes_per_second(job.up_megabits.value_or(0));
  options.download_bytes_per_second = transfer::bytes_per_second(job.down_megabits.value_or(0));
  options.on_event = [](const std::string& event) { spdlog::info("{}", event); };
  options.on_peer_endpoint = [this, &node, &job](const net::ProcessName& name,
                                                 const std::string& host,
                                                 const std::string& endpoint) {
    const auto key = job.agent_keys.find(name.text());
    if (key == job.agent_keys.end()) return;
    try {
      transfer_agent_.add_peer(
          name, host,
          node.connect(endpoint, transfer::transfer_link(name, job.name(), name, key->second,
                                                         std::chrono::seconds(job.hold))));
    } catch (const net::LinkError& error) {
      spdlog::warn("cannot fetch from host {}: {}", host, error.what());
    }
  };
  return options;
}

void AgentTransfer::listen(net::Node& node, const hosts::AgentJob& job,
                           const std::string& address) {
  net::BindAddress bind;
  bind.host = address;
  bind.first_port = static_cast<std::uint16_t>(job.ports.first);
  bind.last_port = static_cast<std::uint16_t>(job.ports.second);
  try {
    listener_ = node.listen(bind);
  } catch (const net::LinkError& error) {
    spdlog::warn("other hosts cannot fetch from here: {}", error.what());
    return;
  }
  for (const auto& [text, key] : job.agent_keys) {
    const auto name = net::ProcessName::parse(text);
    // Of every two agents the one with the lower name listens, so that each pair has one link.
    if (!name || !(job.name() < *name)) continue;
    transfer_agent_.add_peer(*name, text,
                             listener_->expect(transfer::transfer_link(
                                 job.name(), *name, *name, key, std::chrono::seconds(job.hold))));
  }
  transfer_agent_.announce_endpoint(listener_->endpoint());
}

}  // namespace strait::agent
