#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "framework/mutex.h"
#include "framework/net/link.h"
#include "framework/net/process_name.h"
#include "launcher/transfer/content_store.h"
#include "launcher/transfer/file_fetcher.h"
#include "launcher/transfer/file_server.h"
#include "launcher/transfer/host_commands.h"
#include "launcher/transfer/transfer_peers.h"

namespace strait::transfer {

struct TransferAgentOptions {
  std::filesystem::path store;         // directory of contents; several processes may share it
  double upload_bytes_per_second = 0;  // to all peers together; 0: no limit
  double download_bytes_per_second = 0;
  std::chrono::seconds stall_timeout{60};  // of a fetch that gets nothing over connected links
  std::function<void(const std::string&)> on_event;  // a message for the log; any thread
  std::optional<HostLinks> host;                     // of a host agent; nullopt: the launcher
};

// Totals of one process since its start.
struct TransferTotals {
  std::uint64_t sent_bytes = 0;      // of chunks
  std::uint64_t fetched_bytes = 0;   // of chunks that were lacking
  std::uint64_t repeated_bytes = 0;  // of chunks that were received without being wanted
};

// Serves chunks of files to other transfer agents and fetches those that this process lacks: one
// object in the launcher and one in each host agent, each linked with the launcher. Two host agents
// are linked when the launcher lets one fetch from the other. The future of a command throws its
// error (UserError); commands fail when the peer disconnects. Any thread may call.
class TransferAgent {
 public:
  explicit TransferAgent(TransferAgentOptions options);
  ~TransferAgent();  // closes links and ends fetches; chunks that were fetched stay on disk
  TransferAgent(const TransferAgent&) = delete;
  TransferAgent& operator=(const TransferAgent&) = delete;

  // Takes the link. `host` names the peer in messages. A peer of the same name is replaced. `key`:
  // its public key, with which other host agents link with it.
  void add_peer(const net::ProcessName& peer, const std::string& host,
                std::unique_ptr<net::Link> link, const std::string& key = {});
  bool linked(const net::ProcessName& peer) const { return peers_.find(peer).has_value(); }
  // The peer has ended: fetches no longer wait for chunks that only it has. Without effect if it is
  // not connected.
  void remove_peer(const net::ProcessName& peer, const std::string& cause);

  // Offers a file of this host to all peers from now on. Returns its chunk table. StoreError.
  ChunkTable offer(const std::filesystem::path& path);

  // FileFetcher::fetch.
  std::uint64_t fetch(const FetchRequest& request, const std::vector<net::ProcessName>& sources,
                      const std::function<void()>& poll) {
    return fetcher_.fetch(request, sources, poll);
  }

  // Commands to a host agent; paths are of its host. The numbers are fetched bytes, or 0. See the
  // messages Stat, Fetch, Put, Prune and Rewind.
  std::future<ChunkTable> stat(const net::ProcessName& host, const std::filesystem::path& path);
  // `source`: another host agent that has or fetches the chunks. As::file: from the source alone.
  std::future<std::uint64_t> fetch_on(const net::ProcessName& host, const FetchRequest& request,
                                      const std::optional<net::ProcessName>& source = {});
  std::future<std::uint64_t> put(const net::ProcessName& host, const std::filesystem::path& path,
                                 const std::string& text);
  std::future<std::uint64_t> prune(const net::ProcessName& host,
                                   const std::filesystem::path& run_directory,
                                   const std::vector<std::uint64_t>& steps);
  std::future<std::uint64_t> rewind(const net::ProcessName& host,
                                    const std::filesystem::path& run_directory, std::uint64_t step);

  TransferTotals totals() const {
    return {server_.sent_bytes(), fetcher_.fetched_bytes(), fetcher_.repeated_bytes()};
  }

 private:
  struct MessageHandler;
  using Answer =
      std::variant<message::Table, message::Accepting, message::Done, std::exception_ptr>;
  using OnAnswer = std::function<void(const Answer&)>;
  struct Pending {
    std::size_t peer = 0;
    OnAnswer on_answer;
  };

  template <class Command>
  void send_command(const net::ProcessName& host, Command command, OnAnswer on_answer)
      STRAIT_EXCLUDES(mutex_);
  // A member of the answer, once it has arrived.
  template <class Answered, class Value, class Command>
  std::future<Value> ask(const net::ProcessName& host, Command command, Value Answered::*value);
  // Calls `then` when the hosts are linked, or cannot be.
  void link_hosts(const net::ProcessName& one, const net::ProcessName& other,
                  const std::function<void()>& then);
  void answered(std::size_t peer, std::uint64_t command, const Answer& answer)
      STRAIT_EXCLUDES(mutex_);
  void disconnected(std::size_t peer, const std::string& cause) STRAIT_EXCLUDES(mutex_);

  const TransferAgentOptions options_;
  ContentStore store_;
  std::atomic<std::uint64_t> numbers_ = 0;
  Mutex mutex_;
  std::map<std::uint64_t, Pending> pending_ STRAIT_GUARDED_BY(mutex_);
  TransferPeers peers_;
  FileServer server_;
  FileFetcher fetcher_;
  std::unique_ptr<HostCommands> commands_;  // of a host agent
};

// Waits for a result. `poll` is called while it waits, and throws to give up.
template <class T, class Poll>
T wait_for(std::future<T>& future, const Poll& poll) {
  constexpr std::chrono::milliseconds kPollEvery{20};
  while (future.wait_for(kPollEvery) != std::future_status::ready) poll();
  return future.get();
}

}  // namespace strait::transfer
