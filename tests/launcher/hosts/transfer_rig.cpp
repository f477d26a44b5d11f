#include "tests/launcher/hosts/transfer_rig.h"

#include <type_traits>

#include "tests/memory_links.h"

namespace strait::transfer {
namespace {

net::ProcessName host_agent_name(std::size_t number) {
  return net::ProcessName::host_agent(static_cast<std::uint32_t>(number));
}

std::vector<std::unique_ptr<TransferHost>> made_hosts(std::size_t count,
                                                      const TransferAgentOptions& options) {
  std::vector<std::unique_ptr<TransferHost>> hosts;
  for (std::size_t i = 0; i < count; ++i) {
    hosts.push_back(std::make_unique<TransferHost>(host_agent_name(i), options));
  }
  return hosts;
}

// What the launcher's end of an agent promises: one reply, be it that the host is lost.
class OneReply {
 public:
  OneReply(std::string host, OnFileReply on_reply)
      : host_(std::move(host)), on_reply_(std::move(on_reply)) {}
  ~OneReply() {
    if (!replied_) (*this)(base::Failure{base::ExitCode::peer_lost, "its agent has ended"});
  }
  OneReply(const OneReply&) = delete;
  OneReply& operator=(const OneReply&) = delete;

  void operator()(FileReply reply) {
    replied_ = true;
    if (auto* failed = std::get_if<base::Failure>(&reply)) {
      failed->text = "host " + host_ + ": " + failed->text;
    }
    on_reply_(reply);
  }

 private:
  const std::string host_;
  const OnFileReply on_reply_;
  bool replied_ = false;
};

}  // namespace

std::string random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(generator());
  return bytes;
}

FetchRequest all_of(const ChunkTable& table, const std::filesystem::path& path) {
  return {table, ChunkSet::all(table.count()), path, FetchRequest::As::content};
}

TransferHost::TransferHost(net::ProcessName its_name, TransferAgentOptions its_options)
    : name(its_name), options(std::move(its_options)) {
  options.store = directory / "content";
  start();
}

void TransferHost::start() { agent = std::make_unique<TransferAgent>(options); }

void TransferHost::perform(const FileRequest& request, const OnFileReply& on_reply) {
  const auto reply = std::make_shared<OneReply>(name.text(), on_reply);
  if (!agent) return;
  std::visit(
      [&]<class Request>(const Request& one) {
        if constexpr (std::is_same_v<Request, LinkWith>) {
          (*reply)(hosts::ListensAt{});
        } else {
          agent->perform(one, [reply](const FileReply& made) { (*reply)(made); });
        }
      },
      request);
}

TransferRig::TransferRig(std::size_t count, TransferAgentOptions options)
    : hosts(made_hosts(count, options)), launcher(net::ProcessName::coordinator(), [&] {
        options.ask = [this](const net::ProcessName& host, const FileRequest& request,
                             const OnFileReply& on_reply) {
          hosts.at(host.replica)->perform(request, on_reply);
        };
        return options;
      }()) {
  for (std::size_t i = 0; i < count; ++i) {
    link(launcher, *hosts[i]);
    for (std::size_t other = 0; other < i; ++other) link(*hosts[other], *hosts[i]);
  }
}

void TransferRig::link(TransferHost& left, TransferHost& right) {
  auto [at_left, at_right] = memory_links(left.name, right.name, "ship");
  left.agent->add_peer(right.name, right.name.text(), std::move(at_left));
  right.agent->add_peer(left.name, left.name.text(), std::move(at_right));
}

std::unique_ptr<net::Link> TransferRig::link_peer(TransferHost& host,
                                                  const net::ProcessName& peer) {
  auto [at_host, at_peer] = memory_links(host.name, peer, "ship");
  host.agent->add_peer(peer, peer.text(), std::move(at_host));
  return std::move(at_peer);
}

void TransferRig::restart(std::size_t number) {
  TransferHost& host = *hosts.at(number);
  host.stop();
  host.start();
  link(launcher, host);
  for (std::size_t other = 0; other < hosts.size(); ++other) {
    if (other != number) link(*hosts[other], host);
  }
}

}  // namespace strait::transfer
