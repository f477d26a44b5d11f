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

#include "framework/net/link.h"
#include "launcher/transfer/fetch_plan.h"
#include "launcher/transfer/destination_file.h"
#include "launcher/transfer/rate_limit.h"
#include "launcher/transfer/chunk_source.h"
#include "launcher/transfer/transfer_message.h"
#include "launcher/transfer/source_pace.h"

namespace strait::transfer {

// What the desk needs of the porter it belongs to. Peers have numbers.
struct FetchPorts {
  std::function<void(std::size_t peer, const ship::Message&)> say;
  std::function<net::LinkState(std::size_t peer)> state;
  std::function<std::optional<std::size_t>(const std::string& process)> peer_called;
  // Tells whoever seeks it that these chunks are here now.
  std::function<void(const std::string& id, const std::vector<ChunkRun>& runs)> announce;
  // Does `work` on another thread and then `after` on this one.
  std::function<void(std::function<void()> work, std::function<void()> after)> aside;
};

// All that one process fetches: from whoever has it, several sources at once, one fetch of a
// content after the other. One thread, the porter's; no call waits.
class FetchQueue {
 public:
  using Time = SourceWindow::Time;
  // No error: everything is in place. `fetched`: bytes that were not here before.
  using Done = std::function<void(std::exception_ptr error, std::uint64_t fetched)>;

  FetchQueue(ContentStore& store, ChunkSource& shelf, FetchPorts ports, std::chrono::seconds patience,
            RateLimit limit);

  void start(std::uint64_t number, FetchRequest order, Done done);
  void forget(std::uint64_t number);  // `done` will not be called

  // `spared`: its uplink is what all share.
  void joined(std::size_t peer, bool spared, Time now);
  void gone(std::size_t peer, const std::string& words);

  // MessageError: the peer sends what it never should.
  void hear(std::size_t peer, const ship::Have& have, Time now);
  void hear(std::size_t peer, const ship::Chunk& chunk, Time now);
  void hear(std::size_t peer, const ship::Elsewhere& elsewhere, Time now);
  void hear(std::size_t peer, const ship::Missing& missing);

  // Asks for what there is room for; gives up what does not move.
  void pump(Time now);

  std::uint64_t fetched_bytes() const { return fetched_bytes_; }    // accepted, in all fetches
  std::uint64_t repeated_bytes() const { return repeated_bytes_; }  // came, and were here already

 private:
  enum class State { waiting, opening, fetching, finishing };
  struct Fetch {
    std::uint64_t number = 0;
    std::string id;
    FetchRequest order;
    Done done;
    State state = State::waiting;
    bool forgotten = false;
    Time retry_at{};
    std::shared_ptr<DestinationFile> landing;
    std::optional<FetchPlan> plan;
    std::uint64_t fetched = 0;
    Time moved{};  // something came, for this fetch
  };
  struct Seeking {
    bool there = false;
    bool spared = false;
    std::optional<Time> since;  // no answer yet to the first question
  };
  using Place = std::list<Fetch>::iterator;

  Place fetching(const std::string& id);  // end(): none
  bool may_begin(Place fetch, Time now);
  void open(Place fetch);
  void opened(Place fetch, const std::exception_ptr& error);
  void seek(std::size_t peer, Fetch& fetch, Time now);
  bool ask_one(std::size_t peer, Time now);
  void finish(Place fetch);
  void end(Place fetch, const std::exception_ptr& error);
  void end_where_stuck(Place fetch, Time now);
  std::string what_is_missing(const Fetch& fetch) const;

  ContentStore& store_;
  ChunkSource& shelf_;
  FetchPorts ports_;
  std::chrono::seconds patience_;
  RateLimit limit_;  // of what is asked for
  std::list<Fetch> fetches_;
  std::vector<Seeking> sources_;                          // by peer
  std::vector<SourceWindow> paces_;                         // likewise
  std::vector<std::shared_ptr<const PinnedContent>> held_;  // what links lead to stays
  std::uint64_t fetched_bytes_ = 0;
  std::uint64_t repeated_bytes_ = 0;
};

}  // namespace strait::transfer
