#include "tests/launcher/transfer/transfer_rig.h"

#include "framework/net/memory_link.h"

namespace strait::transfer {
namespace {

net::ProcessName host_agent_name(std::size_t number) {
  return net::ProcessName::keeper(static_cast<std::uint32_t>(number));
}

}  // namespace

std::string random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(generator());
  return bytes;
}

TransferHost::TransferHost(net::ProcessName its_name, TransferAgentOptions its_options)
    : name(its_name), options(std::move(its_options)) {
  options.store = directory / "content";
  options.accepts_commands = name != net::ProcessName::coordinator();
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
  static const net::RunId run = net::RunId::random();
  net::MemoryEnd left_end{left.name, run, 1, {}};
  left_end.options.name = "ship";
  left_end.options.peer = right.name;
  net::MemoryEnd right_end{right.name, run, 1, {}};
  right_end.options.name = "ship";
  right_end.options.peer = left.name;
  auto [at_left, at_right] = net::memory_link(left_end, right_end);
  left.agent->add_peer(right.name, right.name.text(), std::move(at_left));
  right.agent->add_peer(left.name, left.name.text(), std::move(at_right));
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
