#include "tests/launcher/transfer/transfer_rig.h"

#include "tests/memory_links.h"

namespace strait::transfer {
namespace {

net::ProcessName host_agent_name(std::size_t number) {
  return net::ProcessName::host_agent(static_cast<std::uint32_t>(number));
}

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
  if (name != net::ProcessName::coordinator()) {
    // All hosts of the rig are linked.
    options.host = HostLinks{[](const auto&, const auto&) { return std::string(); },
                             [](const auto&, const auto&) {}};
  }
  start();
}

void TransferHost::start() { agent = std::make_unique<TransferAgent>(options); }

TransferRig::TransferRig(std::size_t count, const TransferAgentOptions& options)
    : launcher(net::ProcessName::coordinator(), options) {
  for (std::size_t i = 0; i < count; ++i) {
    hosts.push_back(std::make_unique<TransferHost>(host_agent_name(i), options));
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
