#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "framework/net/link.h"
#include "framework/net/process_name.h"
#include "launcher/transfer/chunk_source.h"
#include "launcher/transfer/content_store.h"
#include "launcher/transfer/destination_file.h"
#include "launcher/transfer/fetch_queue.h"
#include "launcher/transfer/rate_limit.h"
#include "launcher/transfer/serve_queue.h"
#include "launcher/transfer/table_cache.h"
#include "launcher/transfer/task_queue.h"
#include "launcher/transfer/transfer_commands.h"
#include "launcher/transfer/transfer_peers.h"

namespace strait::transfer {

struct TransferAgentOptions {
  std::filesystem::path store;         // directory of contents; several processes may share it
  double upload_bytes_per_second = 0;  // to all peers together; 0: no limit
  double download_bytes_per_second = 0;
  std::chrono::seconds stall_timeout{60};  // of a fetch that gets nothing over connected links
  bool accepts_commands = false;           // from the launcher: true in a host agent
  // A message for the log. Called on the agent's thread.
  std::function<void(const std::string&)> on_event;
  // Another host agent accepts a link from here. Called on the agent's thread.
  std::function<void(const net::ProcessName&, const std::string& host, const std::string& endpoint)>
      on_peer_endpoint;
};

// Totals of one process since its start.
struct TransferTotals {
  std::uint64_t sent_bytes = 0;      // of chunks
  std::uint64_t fetched_bytes = 0;   // of chunks that were lacking
  std::uint64_t repeated_bytes = 0;  // of chunks that were received without being lacking
};

// Serves chunks of files to other transfer agents and fetches those that this process lacks: one
// object in the launcher and one in each host agent, with a link between every two. The errors of
// fetches and commands come through their futures (UserError, StoreError); commands fail when the
// peer disconnects. Any thread may call; only offer() reads files before it returns.
//
// One thread owns everything but the atomics and queues: calls from outside and received messages
// are its tasks. Work on whole files is done by the file worker's thread.
class TransferAgent {
 public:
  explicit TransferAgent(TransferAgentOptions options);
  ~TransferAgent();  // closes links and ends fetches; chunks that were fetched stay on disk
  TransferAgent(const TransferAgent&) = delete;
  TransferAgent& operator=(const TransferAgent&) = delete;

  // Takes the link. `host` names the peer in messages. A peer of the same name is replaced.
  void add_peer(const net::ProcessName& peer, const std::string& host,
                std::unique_ptr<net::Link> link);
  // The peer has ended: nothing is waited for that only it has. Nothing happens where there is
  // none.
  void remove_peer(const net::ProcessName& peer, const std::string& cause) {
    tasks_.add([this, peer, cause] { peers_.remove(peer, cause); });
  }

  // Offers a file of this host to all peers from now on. Returns its chunk table. StoreError.
  ChunkTable offer(const std::filesystem::path& path);

  struct Fetching {
    std::uint64_t number = 0;            // for cancel()
    std::future<std::uint64_t> fetched;  // bytes that were not here before
  };
  Fetching fetch(FetchRequest request);
  // The future breaks (std::future_error) unless it is ready by then; where a file is just opened
  // or finished for the fetch, after that.
  void cancel(std::uint64_t number);

  // Commands to a host agent; paths are of its host. The numbers are fetched bytes, or 0.
  std::future<ChunkTable> stat(const net::ProcessName& host_agent,
                               const std::filesystem::path& path);
  std::future<std::uint64_t> fetch_on(const net::ProcessName& host_agent,
                                      const FetchRequest& request);
  std::future<std::uint64_t> write_file(const net::ProcessName& host_agent,
                                        const std::filesystem::path& path, const std::string& text);
  // See message::PruneCheckpoints and message::Rewind.
  std::future<std::uint64_t> prune_checkpoints(const net::ProcessName& host_agent,
                                               const std::filesystem::path& run_directory,
                                               const std::vector<std::uint64_t>& steps);
  std::future<std::uint64_t> rewind(const net::ProcessName& host_agent,
                                    const std::filesystem::path& run_directory, std::uint64_t step);

  // Contents in memory: see message::HoldMemory, FetchToMemory. The host holds them until they are
  // released, here and on all hosts, or its agent ends.
  std::future<ChunkTable> hold_memory(const net::ProcessName& host_agent,
                                      const std::filesystem::path& path);
  std::future<std::uint64_t> fetch_to_memory(const net::ProcessName& host_agent,
                                             const ChunkTable& table);
  void release(const std::vector<std::string>& ids);

  // Of a host agent: where other host agents can connect.
  void announce_endpoint(const std::string& endpoint);

  TransferTotals totals() const { return {sent_, fetched_, repeated_}; }

 private:
  struct MessageHandler;

  template <class Value, class Command>
  std::future<Value> send_command(const net::ProcessName& host_agent, Command command);
  void handle(std::size_t peer, const message::Message& received);
  void run();
  void serve(SourceWindow::Time now);
  void send_heartbeats(SourceWindow::Time now);
  void run_or_report(const std::function<void()>& task);
  void offer_stored(const std::string& id);
  void disconnected(std::size_t peer, const std::string& cause);
  void introduce(std::size_t peer, std::size_t listening);
  void require_launcher(std::size_t peer) const;
  void forget(const std::string& ids);

  const TransferAgentOptions options_;
  ContentStore store_;
  TableCache tables_;
  ChunkSource chunk_source_;
  ServeQueue serve_queue_;
  RateLimit upload_limit_;
  SourceWindow::Time heartbeat_sent_{};
  PendingCommands pending_;
  std::map<std::size_t, std::string> endpoints_;  // of host agents, by peer
  std::atomic<std::uint64_t> numbers_ = 0;
  std::atomic<std::uint64_t> sent_ = 0;
  std::atomic<std::uint64_t> fetched_ = 0;
  std::atomic<std::uint64_t> repeated_ = 0;
  TaskQueue tasks_;
  TransferPeers peers_;
  FileWorker file_worker_;
  FetchQueue fetches_;
  HostCommands commands_;
  std::string last_error_;  // on thread_ only; the same error is reported once
  std::thread thread_;
};

}  // namespace strait::transfer
