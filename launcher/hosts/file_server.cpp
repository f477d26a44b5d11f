#include "launcher/hosts/file_server.h"

#include "framework/store/input_file.h"
#include "framework/store/store_error.h"

namespace strait::transfer {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kIdle{1};  // between checks if nothing is due
// The launcher tells this host to fetch a content, and another host to fetch it from here. The
// request of the other host may arrive before the command to this host.
constexpr std::chrono::seconds kGrace{5};

}  // namespace

FileServer::FileServer(TransferPeers& peers, double upload_bytes_per_second,
                       std::chrono::seconds stall_timeout)
    : peers_(peers),
      stall_timeout_(stall_timeout),
      limit_(upload_bytes_per_second),
      thread_([this] { run(); }) {}

void FileServer::stop() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void FileServer::offer(const ChunkTable& table, const std::filesystem::path& path) {
  const MutexLock lock(mutex_);
  // Removes offers whose files do not exist any more.
  std::erase_if(files_, [&path](const auto& entry) {
    std::error_code ignored;
    const std::filesystem::path& other = entry.second.file->path;
    return other == path || !std::filesystem::exists(other, ignored);
  });
  files_.emplace(table.id(), Offer{std::make_shared<const File>(File{table, path, nullptr}),
                                   ChunkSet::all(table.count()), ChunkSet()});
  changed_.notify_all();
}

void FileServer::expect(const ChunkTable& table, const ChunkSet& coming) {
  const MutexLock lock(mutex_);
  Offer& offer = contents_[table.id()];
  // A content that is here in part keeps what it has.
  if (offer.file == nullptr) {
    offer.file = std::make_shared<const File>(File{table, {}, nullptr});
    offer.present = ChunkSet(table.count());
  }
  offer.coming = coming;
}

void FileServer::opened(const ChunkTable& table, std::shared_ptr<const PinnedContent> content,
                        const ChunkSet& present) {
  {
    const MutexLock lock(mutex_);
    Offer& offer = contents_[table.id()];
    // If another file of this host has more of the content, that file stays.
    if (offer.file != nullptr && !present.contains(offer.present)) return;
    const std::filesystem::path path = content->data();
    offer.file = std::make_shared<const File>(File{table, path, std::move(content)});
    offer.present = present;
  }
  changed_.notify_all();
}

void FileServer::arrived(const std::string& id, std::uint32_t chunk) {
  {
    const MutexLock lock(mutex_);
    progress_ = true;
    const auto found = contents_.find(id);
    if (found == contents_.end() || chunk >= found->second.present.size()) return;
    found->second.present.insert(chunk);
  }
  changed_.notify_all();
}

void FileServer::ended(const std::string& id) {
  {
    const MutexLock lock(mutex_);
    const auto found = contents_.find(id);
    if (found == contents_.end()) return;
    found->second.coming = ChunkSet();
    // The fetch failed before it opened a file: nothing can be read.
    if (found->second.file->path.empty()) contents_.erase(found);
  }
  changed_.notify_all();
}

std::vector<const FileServer::Offer*> FileServer::offers_of(const std::string& id) const {
  std::vector<const Offer*> found;
  for (auto [at, end] = files_.equal_range(id); at != end; ++at) found.push_back(&at->second);
  if (const auto at = contents_.find(id); at != contents_.end()) found.push_back(&at->second);
  return found;
}

std::filesystem::path FileServer::find(const std::string& id) const {
  const MutexLock lock(mutex_);
  for (const Offer* offer : offers_of(id)) {
    if (!offer->present.empty()) return offer->file->path;
  }
  return {};
}

bool FileServer::can_be_answered(const Request& request, Time now) const {
  const std::vector<const Offer*> offers = offers_of(request.get.id);
  const auto has = [&](ChunkSet Offer::*chunks) {
    return std::ranges::any_of(
        offers, [&](const Offer* one) { return (one->*chunks).contains(request.get.chunk); });
  };
  if (offers.empty()) return now - request.since > kGrace;
  return has(&Offer::present) || !has(&Offer::coming);
}

void FileServer::request(std::size_t peer, const message::Get& get) {
  {
    const MutexLock lock(mutex_);
    std::deque<Request>& waiting = waiting_[peer];
    if (waiting.size() >= kMostWaiting) {
      // A fetcher's window is smaller; without a bound a peer could fill this process's memory.
      throw base::MessageError("protocol error: too many chunk requests at once");
    }
    waiting.push_back({get, Clock::now()});
  }
  changed_.notify_all();
}

void FileServer::remove_peer(std::size_t peer) {
  const MutexLock lock(mutex_);
  waiting_.erase(peer);
}

void FileServer::run() {
  while (true) {
    Work work;
    {
      const MutexLock lock(mutex_);
      while (!stopped_ && !next_work(Clock::now(), work)) {
        const Time now = Clock::now();
        const bool limited = !waiting_.empty() && limit_.due() > now;
        changed_.wait_until(mutex_, limited ? std::min(limit_.due(), now + kIdle) : now + kIdle);
      }
      if (stopped_) return;
    }
    for (const std::size_t peer : work.delayed) peers_.send(peer, message::Wait{});
    // Without the lock: it reads a disk, and requests have to be taken meanwhile.
    if (work.request) serve(work);
  }
}

bool FileServer::next_work(Time now, Work& work) {
  // A chunk may be due later than a peer waits for data. Any message is data.
  if (now >= told_ + stall_timeout_ / 4.0 && (limit_.due() > now || progress_)) {
    for (const auto& [peer, requests] : waiting_) {
      if (!requests.empty()) work.delayed.push_back(peer);
    }
    told_ = now;
    progress_ = false;
  }
  return (limit_.due() <= now && next_request(now, work)) || !work.delayed.empty();
}

bool FileServer::next_request(Time now, Work& work) {
  // In turn, so that a host with a long queue does not delay the others.
  auto peer = waiting_.upper_bound(served_last_);
  for (std::size_t tried = 0; tried < waiting_.size(); ++tried, ++peer) {
    if (peer == waiting_.end()) peer = waiting_.begin();
    std::deque<Request>& requests = peer->second;
    auto found = requests.begin();
    while (found != requests.end() && !can_be_answered(*found, now)) ++found;
    if (found == requests.end()) continue;
    for (const Offer* offer : offers_of(found->get.id)) {
      if (offer->present.contains(found->get.chunk)) work.files.push_back(offer->file);
    }
    served_last_ = work.peer = peer->first;
    work.request = std::move(found->get);
    requests.erase(found);
    return true;
  }
  return false;
}

void FileServer::serve(const Work& work) {
  const std::size_t peer = work.peer;
  const message::Get& get = *work.request;
  for (const auto& file : work.files) {
    auto frame = read(*file, get);
    if (!frame) continue;
    const std::uint64_t bytes = file->table.bytes(get.chunk);
    {
      const MutexLock lock(mutex_);
      // After the read: a chunk that turned out to be missing costs nothing of the limit.
      limit_.add(Clock::now(), bytes);
    }
    sent_bytes_ += bytes;
    peers_.send_frame(peer, std::move(*frame));
    return;
  }
  peers_.send(peer, message::Missing{get.id, get.chunk});
}

std::optional<net::Frame> FileServer::read(const File& file, const message::Get& get) {
  try {
    std::span<std::byte> content;
    net::Frame frame =
        message::chunk_frame(get.id, get.chunk, file.table.bytes(get.chunk), content);
    store::InputFile(file.path).read(file.table.begin(get.chunk), content);
    if (file.table.matches(get.chunk, content)) return frame;
  } catch (const store::StoreError&) {
    // The peer gets Missing and asks another source.
  }
  const MutexLock lock(mutex_);
  // The chunk is not offered again, or every later request would read it in vain. Only of this
  // file: another one may have it.
  for (auto [at, end] = files_.equal_range(get.id); at != end; ++at) {
    if (at->second.file.get() == &file) at->second.present.erase(get.chunk);
  }
  const auto found = contents_.find(get.id);
  if (found != contents_.end() && found->second.file.get() == &file) {
    found->second.present.erase(get.chunk);
  }
  return std::nullopt;
}

}  // namespace strait::transfer
