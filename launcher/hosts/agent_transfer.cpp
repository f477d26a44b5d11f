#include "launcher/hosts/agent_transfer.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "launcher/base/launcher_links.h"
#include "launcher/hosts/agent_message.h"

namespace strait::hosts {
namespace {

std::chrono::seconds hold_of(const AgentJob& job) { return std::chrono::seconds(job.hold); }

}  // namespace

AgentTransfer::AgentTransfer(net::Node& node, const AgentJob& job,
                             const std::filesystem::path& directory, std::string address)
    : node_(node),
      job_(job),
      address_(std::move(address)),
      transfer_agent_(transfer_options(directory)) {
  const net::ProcessName launcher = net::ProcessName::coordinator();
  transfer_agent_.add_peer(
      launcher, "the launcher",
      node_.connect(job_.endpoints.at(base::kTransferService),
                    transfer::transfer_link(launcher, job_.name(), launcher, job_.launcher_key,
                                            hold_of(job_))));
}

transfer::TransferAgentOptions AgentTransfer::transfer_options(
    const std::filesystem::path& directory) {
  transfer::TransferAgentOptions options;
  options.store = directory / "content";
  options.upload_bytes_per_second = transfer::bytes_per_second(job_.up_megabits.value_or(0));
  options.download_bytes_per_second = transfer::bytes_per_second(job_.down_megabits.value_or(0));
  options.on_event = [](const std::string& event) { spdlog::info("{}", event); };
  options.host = transfer::HostLinks{
      [this](const net::ProcessName& name, const std::string& key) { return accept(name, key); },
      [this](const transfer::message::Connect& to, const net::ProcessName& name) {
        connect(to, name);
      }};
  return options;
}

bool AgentTransfer::is_linked(const net::ProcessName& name, const std::string& key) {
  return std::exchange(linked_[name], key) == key && transfer_agent_.linked(name);
}

std::string AgentTransfer::accept(const net::ProcessName& name, const std::string& key) {
  const MutexLock lock(mutex_);
  if (is_linked(name, key)) return {};
  net::BindAddress bind;
  bind.host = address_;
  bind.first_port = static_cast<std::uint16_t>(job_.ports.first);
  bind.last_port = static_cast<std::uint16_t>(job_.ports.second);
  listeners_.push_back(node_.listen(bind));
  transfer_agent_.add_peer(name, name.text(),
                           listeners_.back()->expect(transfer::transfer_link(
                               job_.name(), name, name, key, hold_of(job_))));
  return listeners_.back()->endpoint();
}

void AgentTransfer::connect(const transfer::message::Connect& to, const net::ProcessName& name) {
  const MutexLock lock(mutex_);
  if (is_linked(name, to.key)) return;
  try {
    transfer_agent_.add_peer(
        name, to.host,
        node_.connect(to.endpoint,
                      transfer::transfer_link(name, job_.name(), name, to.key, hold_of(job_))));
  } catch (const net::LinkError& error) {
    spdlog::warn("cannot fetch from host {}: {}", to.host, error.what());
  }
}

}  // namespace strait::hosts
