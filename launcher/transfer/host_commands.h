#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "launcher/transfer/file_fetcher.h"
#include "launcher/transfer/workers.h"

namespace strait::transfer {

// How a host agent links with another one for files. Called on the receiving thread.
struct HostLinks {
  // Lets the agent of this name and key connect. Returns the endpoint; empty: they are linked
  // already. net::LinkError: this host cannot be connected to.
  std::function<std::string(const net::ProcessName&, const std::string& key)> accept;
  std::function<void(const message::Connect&, const net::ProcessName&)> connect;
};

// Executes the launcher's commands on a host, and answers them: those on files in their order, a
// few fetches at a time.
class HostCommands {
 public:
  HostCommands(ContentStore& store, FileServer& server, FileFetcher& fetcher, TransferPeers& peers,
               HostLinks links)
      : store_(store),
        server_(server),
        fetcher_(fetcher),
        peers_(peers),
        links_(std::move(links)) {}

  void stop() { file_worker_.stop(), fetch_workers_.stop(); }  // close the fetcher first

  // base::MessageError: a protocol error.
  void run(std::size_t peer, message::Stat stat);
  void run(std::size_t peer, message::Fetch fetch);
  void run(std::size_t peer, message::Put put);
  void run(std::size_t peer, message::Prune prune);
  void run(std::size_t peer, message::Rewind rewind);
  void run(std::size_t peer, const message::Accept& accept);
  void run(std::size_t peer, const message::Connect& connect);

 private:
  static constexpr int kFetchesAtOnce = 4;  // so that small files do not wait for each other

  // Sends what `work` returns, or Failed with the error.
  void answer(std::size_t peer, std::uint64_t command,
              const std::function<message::Message()>& work);

  ContentStore& store_;
  FileServer& server_;
  FileFetcher& fetcher_;
  TransferPeers& peers_;
  const HostLinks links_;
  Workers file_worker_{1};
  Workers fetch_workers_{kFetchesAtOnce};
};

}  // namespace strait::transfer
