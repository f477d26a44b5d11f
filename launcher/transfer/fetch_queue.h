#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/transfer/chunk_source.h"
#include "launcher/transfer/destination_file.h"
#include "launcher/transfer/fetch_plan.h"
#include "launcher/transfer/rate_limit.h"
#include "launcher/transfer/task_queue.h"
#include "launcher/transfer/transfer_message.h"
#include "launcher/transfer/transfer_peers.h"

namespace strait::transfer {

// All fetches of one process, each from several sources at once; fetches of the same content run
// one after the other. Only the agent's thread may call; no call blocks.
class FetchQueue {
 public:
  using Time = SourceWindow::Time;
  // Without an error the file is in place. `fetched`: bytes that were not here before.
  using Done = std::function<void(std::exception_ptr error, std::uint64_t fetched)>;

  // `limit`: of the bytes that are requested.
  FetchQueue(ContentStore& store, ChunkSource& chunk_source, TransferPeers& peers,
             FileWorker& file_worker, std::chrono::seconds stall_timeout, RateLimit limit);

  void start(std::uint64_t number, FetchRequest request, Done done);
  void cancel(std::uint64_t number);  // `done` will not be called, but lives until the fetch ends

  // `spared`: its uplink is shared by all hosts.
  void add_peer(std::size_t peer, bool spared, Time now);
  void remove_peer(std::size_t peer, const std::string& cause);

  // base::MessageError: a protocol error of the peer.
  void receive(std::size_t peer, const message::Have& have, Time now);
  void receive(std::size_t peer, const message::Chunk& chunk, Time now);
  void receive(std::size_t peer, const message::Redirect& redirect, Time now);
  void receive(std::size_t peer, const message::Missing& missing);

  // Starts fetches, sends the requests that the windows allow, and ends stalled fetches. Call it
  // after every change.
  void advance(Time now);

  std::uint64_t fetched_bytes() const { return fetched_bytes_; }    // of all fetches
  std::uint64_t repeated_bytes() const { return repeated_bytes_; }  // received, but not lacking

 private:
  enum class State { waiting, opening, fetching, finishing };
  struct Fetch {
    std::uint64_t number = 0;
    std::string id;
    FetchRequest request;
    Done done;
    State state = State::waiting;
    bool cancelled = false;
    Time retry_at{};
    std::shared_ptr<DestinationFile> destination;
    std::optional<FetchPlan> plan;
    std::uint64_t fetched = 0;
    Time last_progress{};
  };
  struct Source {
    bool connected = false;
    bool spared = false;
    std::optional<Time> subscribed_at;  // until the first answer, for the round trip
  };
  using Position = std::list<Fetch>::iterator;

  Position find_fetching(const std::string& id);  // end(): none
  bool may_open(Position fetch, Time now);
  void open(Position fetch);
  void opened(Position fetch, const std::exception_ptr& error);
  void subscribe(std::size_t peer, Fetch& fetch, Time now);
  void unsubscribe(const std::string& id);
  bool request_one(std::size_t peer, Time now);
  void finish(Position fetch);
  void end(Position fetch, const std::exception_ptr& error);
  void end_if_stalled(Position fetch, Time now);
  std::string incomplete(const Fetch& fetch) const;

  ContentStore& store_;
  ChunkSource& chunk_source_;
  TransferPeers& peers_;
  FileWorker& file_worker_;
  std::chrono::seconds stall_timeout_;
  RateLimit limit_;
  std::list<Fetch> fetches_;
  std::vector<Source> sources_;        // by peer
  std::vector<SourceWindow> windows_;  // by peer
  // Contents that links in run directories lead to: pinned until the process ends.
  std::vector<std::shared_ptr<const PinnedContent>> pinned_;
  std::uint64_t fetched_bytes_ = 0;
  std::uint64_t repeated_bytes_ = 0;
};

}  // namespace strait::transfer
