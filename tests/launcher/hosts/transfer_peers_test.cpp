#include "launcher/hosts/transfer_peers.h"

#include <gtest/gtest.h>

#include "tests/memory_links.h"

namespace strait::transfer {
namespace {

// As when the launcher's Accept arrives while a host agent ends.
TEST(TransferPeers, CloseEndsLinksThatAreAddedMeanwhile) {
  const net::ProcessName self = net::ProcessName::host_agent(0);
  const net::ProcessName first = net::ProcessName::coordinator();
  const net::ProcessName second = net::ProcessName::host_agent(1);
  auto first_link = memory_links(self, first, "ship");
  auto second_link = memory_links(self, second, "ship");
  TransferPeers* peers = nullptr;
  TransferPeers::Handlers handlers;
  handlers.received = [&](std::size_t, const message::Message&) {
    // Returns when close() has ended the links that it sees.
    EXPECT_THROW(first_link.second->receive(), net::LinkError);
    peers->add(second, "b", std::move(second_link.first), "");
  };
  handlers.disconnected = [](std::size_t, const std::string&) {};
  TransferPeers closing(handlers);
  peers = &closing;
  closing.add(first, "a", std::move(first_link.first), "");
  first_link.second->send(message::format(message::Wait{}));
  closing.close();
  EXPECT_THROW(second_link.second->receive(), net::LinkError);
}

}  // namespace
}  // namespace strait::transfer
