#pragma once

#include "framework/mutex.h"
#include "framework/net/frame_memory.h"
#include "launcher/hosts/content_store.h"
#include "launcher/hosts/transfer_peers.h"

namespace strait::transfer {

// Converts megabits per second to bytes per second.
constexpr double bytes_per_second(double megabits) { return megabits * 1e6 / 8; }

// When the next bytes may be sent so that the average rate stays below the limit. Pure: no clock.
class RateLimit {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit RateLimit(double bytes_per_second = 0) : rate_(bytes_per_second) {}  // 0: no limit

  Time due() const { return due_; }
  void add(Time now, std::uint64_t bytes) {
    if (rate_ <= 0) return;
    const std::chrono::duration<double> takes(static_cast<double>(bytes) / rate_);
    due_ = std::max(due_, now) + std::chrono::duration_cast<Time::duration>(takes);
  }

 private:
  double rate_;
  Time due_{};
};

// Sends chunks of files of this host to peers that request them, within the upload limit. It serves
// peers in turn, and the requests of a peer in their order. A chunk is verified before it is sent,
// so that a file that was modified or removed is only a missing chunk. Several files may have the
// same content (a checkpoint of one step, on disk and in memory): each comes and goes alone. Any
// thread may call.
class FileServer {
 public:
  FileServer(TransferPeers& peers, double upload_bytes_per_second,
             std::chrono::seconds stall_timeout);
  ~FileServer() { stop(); }
  FileServer(const FileServer&) = delete;
  FileServer& operator=(const FileServer&) = delete;
  void stop() STRAIT_EXCLUDES(mutex_);

  // A whole file, for as long as it exists.
  void offer(const ChunkTable& table, const std::filesystem::path& path) STRAIT_EXCLUDES(mutex_);

  // This host is fetching a content: requests for its chunks wait until they arrive.
  void expect(const ChunkTable& table, const ChunkSet& coming) STRAIT_EXCLUDES(mutex_);
  void opened(const ChunkTable& table, std::shared_ptr<const PinnedContent> content,
              const ChunkSet& present) STRAIT_EXCLUDES(mutex_);
  void arrived(const std::string& id, std::uint32_t chunk) STRAIT_EXCLUDES(mutex_);
  void ended(const std::string& id) STRAIT_EXCLUDES(mutex_);  // the fetch has ended

  // A file here that has some of the chunks; empty: none.
  std::filesystem::path find(const std::string& id) const STRAIT_EXCLUDES(mutex_);

  // base::MessageError: too many requests at once.
  void request(std::size_t peer, const message::Get& get) STRAIT_EXCLUDES(mutex_);
  void remove_peer(std::size_t peer) STRAIT_EXCLUDES(mutex_);

  std::uint64_t sent_bytes() const { return sent_bytes_; }

 private:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::size_t kMostWaiting = 64;  // requests of one peer

  struct Request {
    message::Get get;
    Time since;
  };
  struct File {
    ChunkTable table;
    std::filesystem::path path;                    // empty: not opened yet
    std::shared_ptr<const PinnedContent> content;  // pinned while it is offered
  };
  struct Offer {
    std::shared_ptr<const File> file;
    ChunkSet present;
    ChunkSet coming;
  };
  struct Work {
    std::size_t peer = 0;
    std::optional<message::Get> request;
    std::vector<std::shared_ptr<const File>> files;  // that may have the chunk
    std::vector<std::size_t> delayed;                // peers that are told so
  };

  void run() STRAIT_EXCLUDES(mutex_);
  bool next_work(Time now, Work& work) STRAIT_REQUIRES(mutex_);
  bool next_request(Time now, Work& work) STRAIT_REQUIRES(mutex_);
  void serve(const Work& work) STRAIT_EXCLUDES(mutex_);
  std::optional<net::Frame> read(const File& file, const message::Get& get) STRAIT_EXCLUDES(mutex_);
  std::vector<const Offer*> offers_of(const std::string& id) const STRAIT_REQUIRES(mutex_);
  bool can_be_answered(const Request& request, Time now) const STRAIT_REQUIRES(mutex_);

  TransferPeers& peers_;
  const std::chrono::seconds stall_timeout_;
  std::atomic<std::uint64_t> sent_bytes_ = 0;
  mutable Mutex mutex_;
  Condition changed_;
  bool stopped_ STRAIT_GUARDED_BY(mutex_) = false;
  RateLimit limit_ STRAIT_GUARDED_BY(mutex_);
  std::multimap<std::string, Offer> files_ STRAIT_GUARDED_BY(mutex_);  // whole ones, by id
  std::map<std::string, Offer> contents_ STRAIT_GUARDED_BY(mutex_);    // of the store, by id
  std::map<std::size_t, std::deque<Request>> waiting_ STRAIT_GUARDED_BY(mutex_);  // by peer
  std::size_t served_last_ STRAIT_GUARDED_BY(mutex_) = 0;                         // peer
  bool progress_ STRAIT_GUARDED_BY(mutex_) = false;  // of our own fetches, since `told_`
  Time told_ STRAIT_GUARDED_BY(mutex_){};            // peers that they have to wait
  std::thread thread_;
};

}  // namespace strait::transfer
