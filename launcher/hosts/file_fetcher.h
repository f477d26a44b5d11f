#pragma once

#include <list>

#include "framework/mutex.h"
#include "launcher/hosts/destination_file.h"
#include "launcher/hosts/file_server.h"
#include "launcher/hosts/transfer_peers.h"

namespace strait::transfer {

// How many chunks are requested from one peer at a time: as many as arrived in the last second,
// plus two, so that the path is never idle. Pure: no clock.
class RequestWindow {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::size_t kMost = 32;  // fits into the send window of a link

  bool full(Time now) {
    while (!arrived_.empty() && now - arrived_.front() > std::chrono::seconds(1)) {
      arrived_.pop_front();
    }
    return outstanding_ >= std::min(arrived_.size() + 2, kMost);
  }
  void requested() { ++outstanding_; }
  void answered() { outstanding_ -= outstanding_ > 0 ? 1 : 0; }
  void arrived(Time now) {
    answered();
    arrived_.push_back(now);
  }

 private:
  std::size_t outstanding_ = 0;
  std::deque<Time> arrived_;
};

// Fetches files, each on the calling thread. A chunk is requested from the first source. It is
// requested from the next source if the first one does not have it, sends a wrong one, ends, or
// sends nothing for a third of the stall timeout. So the last source decides whether the fetch
// succeeds. Any thread may call.
class FileFetcher {
 public:
  FileFetcher(ContentStore& store, FileServer& server, TransferPeers& peers,
              std::chrono::seconds stall_timeout, double download_bytes_per_second);

  // Returns when the file is in place: the number of fetched bytes. `poll` is called repeatedly,
  // and throws to give up; fetched chunks are saved for the next fetch of this content. UserError,
  // StoreError.
  std::uint64_t fetch(const FetchRequest& request, const std::vector<net::ProcessName>& sources,
                      const std::function<void()>& poll);
  // Ends all fetches, now and later: `interrupted`.
  void close() STRAIT_EXCLUDES(mutex_);

  // Answers of peers.
  void receive(std::size_t peer, message::Chunk chunk) STRAIT_EXCLUDES(mutex_);
  void receive(std::size_t peer, const message::Missing& missing) STRAIT_EXCLUDES(mutex_);
  void remove_peer(std::size_t peer, const std::string& cause) STRAIT_EXCLUDES(mutex_);

  std::uint64_t fetched_bytes() const { return fetched_bytes_; }    // of all fetches
  std::uint64_t repeated_bytes() const { return repeated_bytes_; }  // received, but not wanted

 private:
  using Time = RequestWindow::Time;
  class Fetch;
  // The requests of a fetch, and the answers that it has not handled yet.
  struct Requests {
    struct Answer {
      std::size_t peer = 0;
      std::uint32_t chunk = 0;
      std::optional<std::vector<std::byte>> content;  // none: missing
    };
    std::string id;
    std::map<std::uint32_t, std::size_t> asked;  // chunk: peer
    std::deque<Answer> answers;
  };
  using Running = std::list<Requests>::iterator;

  // False: not now, because of the window or the limit.
  bool request(Running fetch, std::size_t peer, std::uint32_t chunk, std::uint64_t bytes)
      STRAIT_EXCLUDES(mutex_);
  std::deque<Requests::Answer> take_answers(Running fetch) STRAIT_EXCLUDES(mutex_);
  void answer(Requests::Answer answer, const std::string& id) STRAIT_REQUIRES(mutex_);
  void require_open() const STRAIT_REQUIRES(mutex_);
  // Why it is not connected any more.
  std::optional<std::string> disconnected(std::size_t peer) STRAIT_EXCLUDES(mutex_);

  ContentStore& store_;
  FileServer& server_;
  TransferPeers& peers_;
  const std::chrono::seconds stall_timeout_;
  std::atomic<std::uint64_t> fetched_bytes_ = 0;
  std::atomic<std::uint64_t> repeated_bytes_ = 0;
  Mutex mutex_;
  Condition changed_;
  bool closed_ STRAIT_GUARDED_BY(mutex_) = false;
  RateLimit limit_ STRAIT_GUARDED_BY(mutex_);
  std::list<Requests> running_ STRAIT_GUARDED_BY(mutex_);
  std::map<std::size_t, RequestWindow> windows_ STRAIT_GUARDED_BY(mutex_);     // by peer
  std::map<std::size_t, std::string> disconnected_ STRAIT_GUARDED_BY(mutex_);  // cause, by peer
  // Contents that links in run directories name: pinned until the process ends.
  std::vector<std::shared_ptr<const PinnedContent>> pinned_ STRAIT_GUARDED_BY(mutex_);
};

}  // namespace strait::transfer
