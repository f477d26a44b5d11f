#include "launcher/hosts/agent_transfer.h"

#include <spdlog/spdlog.h>

#include "launcher/base/errors.h"
#include "launcher/base/launcher_links.h"

namespace strait::hosts {
namespace {

std::chrono::seconds hold_of(const AgentJob& job) { return std::chrono::seconds(job.hold); }

transfer::TransferAgentOptions transfer_options(const AgentJob& job,
                                                const std::filesystem::path& directory) {
  transfer::TransferAgentOptions options;
  options.store = directory / "content";
  options.upload_bytes_per_second = transfer::bytes_per_second(job.up_megabits.value_or(0));
  options.download_bytes_per_second = transfer::bytes_per_second(job.down_megabits.value_or(0));
  options.on_event = [](const std::string& event) { spdlog::info("{}", event); };
  return options;
}

}  // namespace

AgentTransfer::AgentTransfer(net::Node& node, const AgentJob& job,
                             const std::filesystem::path& directory, std::string address)
    : node_(node),
      job_(job),
      address_(std::move(address)),
      transfer_agent_(transfer_options(job, directory)) {
  const net::ProcessName launcher = net::ProcessName::coordinator();
  transfer_agent_.add_peer(
      launcher, "the launcher",
      node_.connect(job_.endpoints.at(base::kTransferService),
                    transfer::transfer_link(launcher, job_.name(), launcher, job_.launcher_key,
                                            hold_of(job_))));
}

bool AgentTransfer::is_linked(const net::ProcessName& name, const std::string& key) {
  return std::exchange(linked_[name], key) == key && transfer_agent_.linked(name);
}

void AgentTransfer::perform(const transfer::Accept& accept, const transfer::OnFileReply& on_reply) {
  const net::ProcessName& name = accept.process;
  if (is_linked(name, accept.key)) return on_reply(transfer::ListensAt{});
  net::BindAddress bind;
  bind.host = address_;
  bind.first_port = static_cast<std::uint16_t>(job_.ports.first);
  bind.last_port = static_cast<std::uint16_t>(job_.ports.second);
  try {
    listeners_.push_back(node_.listen(bind));
    transfer_agent_.add_peer(name, name.text(),
                             listeners_.back()->expect(transfer::transfer_link(
                                 job_.name(), name, name, accept.key, hold_of(job_))));
    on_reply(transfer::ListensAt{listeners_.back()->endpoint()});
  } catch (const net::LinkError& error) {
    on_reply(base::describe_failure(error));
  }
}

void AgentTransfer::perform(const transfer::Connect& connect,
                            const transfer::OnFileReply& on_reply) {
  if (!is_linked(connect.process, connect.key)) {
    try {
      transfer_agent_.add_peer(
          connect.process, connect.host,
          node_.connect(connect.endpoint,
                        transfer::transfer_link(connect.process, job_.name(), connect.process,
                                                connect.key, hold_of(job_))));
    } catch (const net::LinkError& error) {
      spdlog::warn("cannot fetch from host {}: {}", connect.host, error.what());
      return on_reply(base::describe_failure(error));
    }
  }
  on_reply(transfer::Done{});
}

}  // namespace strait::hosts
