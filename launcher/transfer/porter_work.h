#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <variant>

#include "launcher/transfer/fetch_queue.h"
#include "launcher/transfer/transfer_agent.h"
#include "launcher/transfer/rate_limit.h"
#include "launcher/transfer/serve_queue.h"
#include "launcher/transfer/chunk_source.h"
#include "launcher/transfer/transfer_peers.h"
#include "launcher/transfer/slow_lane.h"
#include "launcher/transfer/table_cache.h"
#include "launcher/transfer/task_queue.h"

namespace strait::transfer {

// The one thread of a porter and all that belongs to it. Everything but inbox(), tables(),
// next_number() and state() is for that thread.
class PorterWork {
 public:
  explicit PorterWork(TransferAgentOptions options);
  ~PorterWork();
  PorterWork(const PorterWork&) = delete;
  PorterWork& operator=(const PorterWork&) = delete;

  TaskQueue& inbox() { return inbox_; }
  TransferPeers& peers() { return peers_; }
  FetchQueue& desk() { return desk_; }
  ChunkSource& shelf() { return shelf_; }
  const TableCache& tables() const { return tables_; }

  std::uint64_t next_number() { return ++numbers_; }
  void joined(const net::ProcessName& name, const std::string& host,
              std::unique_ptr<net::Link> link);
  void offered(const std::filesystem::path& path, ChunkTable table);

  // An order to a peer, and what its answer fulfils.
  using Answer = std::variant<std::promise<ChunkTable>, std::promise<std::uint64_t>>;
  void tell(const net::ProcessName& keeper, std::uint64_t number, const ship::Message& order,
            std::shared_ptr<Answer> answer);
  void forget(std::uint64_t number);
  void listens(const std::string& endpoint);

  TransferTotals state() const { return {sent_, fetched_, repeated_}; }

 private:
  struct Told {
    std::size_t peer = 0;
    std::shared_ptr<Answer> answer;
  };

  void run();
  void serve(SourceWindow::Time now);
  void gone(std::size_t peer, const std::string& words);
  void aside(std::function<void()> work, std::function<void()> after);
  void refuse(std::size_t peer, std::uint64_t order, const std::exception_ptr& error);
  void must_be_coordinator(std::size_t peer) const;

  void hear(std::size_t peer, const ship::Message& message);
  void on(std::size_t peer, const ship::Seek& seek);
  void on(std::size_t peer, const ship::Get& get);
  void on(std::size_t peer, const ship::Have& have);
  void on(std::size_t peer, const ship::Chunk& chunk);
  void on(std::size_t peer, const ship::Elsewhere& elsewhere);
  void on(std::size_t peer, const ship::Missing& missing);
  void on(std::size_t peer, const ship::Look& look);
  void on(std::size_t peer, const ship::Bring& bring);
  void on(std::size_t peer, const ship::Put& put);
  void on(std::size_t peer, const ship::Forget& forget);
  void on(std::size_t peer, const ship::Neighbour& neighbour);
  void on(std::size_t peer, const ship::Prune& prune);
  void on(std::size_t peer, const ship::Listening& listening);
  void on(std::size_t peer, const ship::Rewind& rewind);
  void on(std::size_t peer, const ship::Seen& seen);
  void on(std::size_t peer, const ship::Brought& brought);
  void on(std::size_t peer, const ship::Refused& refused);
  template <class T>
  void fulfil(std::size_t peer, std::uint64_t order, const T& value);
  void fail(std::uint64_t order, const std::exception_ptr& error);
  void introduce(std::size_t peer, std::size_t listens);
  // Does the work aside and answers the order of this number with Brought or Refused.
  void obey(std::size_t peer, std::uint64_t order, std::function<void()> work);

  const TransferAgentOptions options_;
  ContentStore store_;
  TableCache tables_;
  ChunkSource shelf_;
  ServeQueue queue_;
  RateLimit limit_;
  std::map<std::uint64_t, Told> told_;
  std::map<std::size_t, std::string> endpoints_;              // of keepers, by peer
  std::map<std::uint64_t, std::uint64_t> numbers_of_orders_;  // of the coordinator's: of ours
  std::atomic<std::uint64_t> numbers_ = 0;
  std::atomic<std::uint64_t> sent_ = 0;
  std::atomic<std::uint64_t> fetched_ = 0;
  std::atomic<std::uint64_t> repeated_ = 0;
  TaskQueue inbox_;
  TransferPeers peers_;
  FetchQueue desk_;
  std::unique_ptr<FileWorker> slow_;
  std::thread thread_;
};

}  // namespace strait::transfer
