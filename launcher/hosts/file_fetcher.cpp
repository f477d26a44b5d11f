#include "launcher/hosts/file_fetcher.h"

namespace strait::transfer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookEvery{100};  // at the clock and at `poll`
// Between attempts to get the write lock of a content that another process fetches.
constexpr std::chrono::milliseconds kWriteLockRetry{200};

}  // namespace

// One fetch. One thread, but for `requests_`, which the fetcher's mutex guards.
class FileFetcher::Fetch {
 public:
  Fetch(FileFetcher& fetcher, const FetchRequest& request,
        const std::vector<net::ProcessName>& sources)
      : fetcher_(fetcher), request_(request), id_(request.table.id()) {
    for (const net::ProcessName& name : sources) {
      const auto peer = fetcher_.peers_.find(name);
      sources_.push_back({peer.value_or(kNoPeer), !peer.has_value(), 0});
      if (!peer) note(base::ExitCode::peer_lost, name.describe() + " is not connected");
    }
    const MutexLock lock(fetcher_.mutex_);
    // A list: the iterator stays valid while other fetches come and go.
    requests_ = fetcher_.running_.insert(fetcher_.running_.end(), Requests{id_, {}, {}});
  }
  ~Fetch() {
    {
      const MutexLock lock(fetcher_.mutex_);
      fetcher_.running_.erase(requests_);
    }
    // Also when an exception ends the fetch: what has arrived is not fetched a second time.
    if (destination_ && lacking_ > 0) destination_->abandon();
  }
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  std::uint64_t run(const std::function<void()>& poll) {
    open(poll);
    while (lacking_ > 0) {
      poll();
      request_chunks();
      for (const Requests::Answer& answer : fetcher_.take_answers(requests_)) handle(answer);
      give_up_silent_sources(Clock::now());
    }
    destination_->finish();
    return fetched_;
  }

 private:
  static constexpr std::size_t kNoPeer = std::numeric_limits<std::size_t>::max();

  struct Source {
    std::size_t peer = kNoPeer;
    bool given_up = false;
    std::size_t asked = 0;  // chunks that it has not sent yet
  };

  void open(const std::function<void()>& poll) {
    while (true) {
      poll();
      destination_ = DestinationFile::open(fetcher_.store_, request_, fetcher_.server_.find(id_));
      if (destination_) break;
      const Time retry = Clock::now() + kWriteLockRetry;
      const MutexLock lock(fetcher_.mutex_);
      fetcher_.require_open();
      fetcher_.changed_.wait_until(fetcher_.mutex_, retry);
    }
    const ChunkSet& present = destination_->file().chunks();
    for (std::uint32_t chunk = 0; chunk < request_.chunks.size(); ++chunk) {
      if (request_.chunks.contains(chunk) && !present.contains(chunk)) open_.push_back(chunk);
    }
    // The time to read and hash what is already here does not count as silence of a source.
    lacking_ = open_.size();
    progress_ = Clock::now();
    lacking_bytes_ = 0;
    for (const std::uint32_t chunk : open_) lacking_bytes_ += request_.table.bytes(chunk);
    const auto content = destination_->content();
    if (!content) return;
    fetcher_.server_.opened(request_.table, content, present);
    const MutexLock lock(fetcher_.mutex_);
    // Pinned until the process ends: a stage reads the content by a link, of which the store knows
    // nothing.
    fetcher_.pinned_.push_back(content);
  }

  // The first source that may have the chunk. UserError: no source is left.
  std::size_t source_of(std::uint32_t chunk) {
    // A source that has answered Missing is not asked for that chunk again, but for others.
    const auto first = first_source_.find(chunk);
    std::size_t source = first == first_source_.end() ? 0 : first->second;
    while (source < sources_.size() && sources_[source].given_up) ++source;
    if (source < sources_.size()) return source;
    throw base::UserError(code_, "cannot fetch {}: {} of {} bytes are missing: {}",
                          request_.path.string(), lacking_bytes_,
                          request_.chunks.bytes(request_.table), cause_);
  }

  void request_chunks() {
    while (!open_.empty()) {
      const std::uint32_t chunk = open_.front();
      Source& source = sources_[source_of(chunk)];
      // Recorded before it is sent, because the answer comes on another thread.
      if (!fetcher_.request(requests_, source.peer, chunk, request_.table.bytes(chunk))) return;
      open_.pop_front();
      ++source.asked;
      fetcher_.peers_.send(source.peer, message::Get{id_, chunk});
    }
  }

  void handle(const Requests::Answer& answer) {
    const auto source = std::ranges::find(sources_, answer.peer, &Source::peer);
    --source->asked;
    progress_ = Clock::now();
    if (!answer.content) {
      // Not a broken source: the error counts only if no other source has the chunk.
      note(base::ExitCode::stalled, "no connected host has the rest");
      first_source_[answer.chunk] = static_cast<std::size_t>(source - sources_.begin()) + 1;
      open_.push_front(answer.chunk);
      return;
    }
    if (!destination_->file().write(answer.chunk, *answer.content)) {
      open_.push_front(answer.chunk);
      // Links check what they carry, and the sender checks what it reads, so a wrong hash is a
      // wrong program.
      fetcher_.peers_.drop(answer.peer, "protocol error: the hash of a chunk does not match");
      return;
    }
    --lacking_;
    const std::uint64_t bytes = answer.content->size();
    lacking_bytes_ -= bytes;
    fetched_ += bytes;
    fetcher_.fetched_bytes_ += bytes;
    if (destination_->content()) fetcher_.server_.arrived(id_, answer.chunk);
  }

  void give_up_silent_sources(Time now) {
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      Source& source = sources_[i];
      if (source.given_up) continue;
      const std::optional<std::string> disconnected = fetcher_.disconnected(source.peer);
      if (disconnected) {
        give_up(source, base::ExitCode::peer_lost, *disconnected);
        continue;
      }
      const bool wanted = source.asked > 0 || (!open_.empty() && source_of(open_.front()) == i);
      if (wanted && is_silent(source, i, now)) {
        give_up(source, base::ExitCode::stalled,
                fmt::format("no data from {} for {} s", fetcher_.peers_.state(source.peer).peer,
                            fetcher_.stall_timeout_.count()));
      }
    }
  }

  bool is_silent(const Source& source, std::size_t number, Time now) {
    const net::LinkState link = fetcher_.peers_.state(source.peer);
    // An alternative source is abandoned sooner, because the next one (the launcher) has
    // everything.
    const bool last = std::all_of(sources_.begin() + static_cast<std::ptrdiff_t>(number) + 1,
                                  sources_.end(), [](const Source& one) { return one.given_up; });
    const bool delayed = [&] {
      const MutexLock lock(fetcher_.mutex_);
      return source.asked == 0 && fetcher_.limit_.due() > now;
    }();
    // A source is not at fault if our own limit delays it. While a path is down, the link decides
    // when to give up.
    if (delayed || (last && !link.connected)) progress_ = now;
    if (last) return now - std::max(progress_, link.last_data) > fetcher_.stall_timeout_;
    const Time heard = link.connected
                           ? std::max(progress_, link.last_data)
                           : std::max(fetcher_.peers_.added(source.peer), link.last_heard);
    return now - heard > fetcher_.stall_timeout_ / 3.0;
  }

  // Requests the chunks of this source from the next one, except chunks whose answers are here.
  void give_up(Source& source, base::ExitCode code, const std::string& cause) {
    note(code, cause);
    source.given_up = true;
    progress_ = Clock::now();
    const MutexLock lock(fetcher_.mutex_);
    std::erase_if(requests_->asked, [&](const auto& asked) {
      if (asked.second != source.peer) return false;
      open_.push_back(asked.first);
      --source.asked;
      return true;
    });
    // In file order, so that disks are read in sequence.
    std::ranges::sort(open_);
  }

  void note(base::ExitCode code, const std::string& cause) {
    code_ = code;
    cause_ = cause;
  }

  FileFetcher& fetcher_;
  const FetchRequest& request_;
  Running requests_;
  const std::string id_;
  std::vector<Source> sources_;
  std::unique_ptr<DestinationFile> destination_;
  std::deque<std::uint32_t> open_;                     // chunks that are to be requested
  std::map<std::uint32_t, std::size_t> first_source_;  // of chunks that earlier sources lack
  std::size_t lacking_ = 0;                            // chunks
  std::uint64_t lacking_bytes_ = 0;
  std::uint64_t fetched_ = 0;
  Time progress_;  // the last answer, or the last change of sources
  base::ExitCode code_ = base::ExitCode::peer_lost;  // why the last source failed
  std::string cause_ = "there is no source";
};

FileFetcher::FileFetcher(ContentStore& store, FileServer& server, TransferPeers& peers,
                         std::chrono::seconds stall_timeout, double download_bytes_per_second)
    : store_(store),
      server_(server),
      peers_(peers),
      stall_timeout_(stall_timeout),
      limit_(download_bytes_per_second) {}

std::uint64_t FileFetcher::fetch(const FetchRequest& request,
                                 const std::vector<net::ProcessName>& sources,
                                 const std::function<void()>& poll) {
  return Fetch(*this, request, sources).run(poll);
}

void FileFetcher::close() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

void FileFetcher::require_open() const {
  if (!closed_) return;
  throw base::UserError(base::ExitCode::interrupted, "the transfer agent is shutting down");
}

bool FileFetcher::request(Running fetch, std::size_t peer, std::uint32_t chunk,
                          std::uint64_t bytes) {
  const Time now = Clock::now();
  const MutexLock lock(mutex_);
  if (windows_[peer].full(now) || limit_.due() > now) return false;
  windows_[peer].requested();
  // Charged at the request: bytes that are on their way count, too.
  limit_.add(now, bytes);
  fetch->asked[chunk] = peer;
  return true;
}

std::deque<FileFetcher::Requests::Answer> FileFetcher::take_answers(Running fetch) {
  const Time look = Clock::now() + kLookEvery;
  const MutexLock lock(mutex_);
  require_open();
  if (fetch->answers.empty()) {
    const Time now = Clock::now();
    changed_.wait_until(mutex_, limit_.due() > now ? std::min(limit_.due(), look) : look);
  }
  return std::exchange(fetch->answers, {});
}

void FileFetcher::receive(std::size_t peer, message::Chunk chunk) {
  {
    const MutexLock lock(mutex_);
    windows_[peer].arrived(Clock::now());
    answer({peer, chunk.chunk, std::move(chunk.content)}, chunk.id);
  }
  changed_.notify_all();
}

void FileFetcher::receive(std::size_t peer, const message::Missing& missing) {
  {
    const MutexLock lock(mutex_);
    windows_[peer].answered();
    answer({peer, missing.chunk, std::nullopt}, missing.id);
  }
  changed_.notify_all();
}

// Passes the answer to the fetch that waits for it. If the fetch has ended or has given up this
// source, nothing waits for it.
void FileFetcher::answer(Requests::Answer answer, const std::string& id) {
  for (Requests& fetch : running_) {
    const auto asked = fetch.asked.find(answer.chunk);
    if (fetch.id != id || asked == fetch.asked.end() || asked->second != answer.peer) continue;
    fetch.asked.erase(asked);
    fetch.answers.push_back(std::move(answer));
    return;
  }
  if (answer.content) repeated_bytes_ += answer.content->size();
}

std::optional<std::string> FileFetcher::disconnected(std::size_t peer) {
  const MutexLock lock(mutex_);
  const auto found = disconnected_.find(peer);
  return found == disconnected_.end() ? std::nullopt : std::optional(found->second);
}

void FileFetcher::remove_peer(std::size_t peer, const std::string& cause) {
  {
    const MutexLock lock(mutex_);
    disconnected_[peer] = cause;
  }
  changed_.notify_all();
}

}  // namespace strait::transfer
