#include "launcher/transfer/fetch_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "launcher/base/errors.h"

namespace strait::transfer {
namespace {

using Clock = std::chrono::steady_clock;
// Between attempts to get the write lock of a content that another process fetches.
constexpr std::chrono::milliseconds kWriteLockRetry{200};

}  // namespace

FetchQueue::FetchQueue(ContentStore& store, ChunkSource& chunk_source, TransferPeers& peers,
                       FileWorker& file_worker, std::chrono::seconds stall_timeout, RateLimit limit)
    : store_(store),
      chunk_source_(chunk_source),
      peers_(peers),
      file_worker_(file_worker),
      stall_timeout_(stall_timeout),
      limit_(limit) {}

void FetchQueue::start(std::uint64_t number, FetchRequest request, Done done) {
  Fetch fetch;
  fetch.number = number;
  fetch.id = request.table.id();
  fetch.request = std::move(request);
  fetch.done = std::move(done);
  fetches_.push_back(std::move(fetch));
}

void FetchQueue::cancel(std::uint64_t number) {
  for (auto fetch = fetches_.begin(); fetch != fetches_.end(); ++fetch) {
    if (fetch->number != number || fetch->cancelled) continue;
    fetch->cancelled = true;
    // In the other states the file thread uses the fetch; it ends when that is done. Until then
    // `done` is kept: what it holds, such as a file in memory, is what the file thread opens.
    if (fetch->state == State::waiting || fetch->state == State::fetching) end(fetch, nullptr);
    return;
  }
}

void FetchQueue::add_peer(std::size_t peer, bool spared, Time now) {
  if (peer >= sources_.size()) {
    sources_.resize(peer + 1);
    windows_.resize(peer + 1);
  }
  sources_[peer] = {true, spared, std::nullopt};
  windows_[peer] = {};
  for (Fetch& fetch : fetches_) {
    if (fetch.state == State::fetching) subscribe(peer, fetch, now);
  }
}

void FetchQueue::remove_peer(std::size_t peer, const std::string& cause) {
  sources_.at(peer).connected = false;
  windows_[peer] = {};
  const bool last = std::none_of(sources_.begin(), sources_.end(),
                                 [](const Source& source) { return source.connected; });
  for (auto next = fetches_.begin(); next != fetches_.end();) {
    const auto fetch = next++;  // end() erases it
    if (fetch->state != State::fetching) continue;
    fetch->plan->remove_source(peer);
    if (!last) continue;
    end(fetch, std::make_exception_ptr(
                   base::UserError(base::ExitCode::peer_lost, incomplete(*fetch) + ": " + cause)));
  }
}

FetchQueue::Position FetchQueue::find_fetching(const std::string& id) {
  return std::find_if(fetches_.begin(), fetches_.end(), [&id](const Fetch& fetch) {
    return fetch.state == State::fetching && fetch.id == id;
  });
}

void FetchQueue::receive(std::size_t peer, const message::Have& have, Time now) {
  if (sources_.at(peer).subscribed_at) {
    windows_[peer].set_round_trip(now - *sources_[peer].subscribed_at);
    sources_[peer].subscribed_at.reset();
  }
  const auto fetch = find_fetching(have.id);
  if (fetch == fetches_.end()) return;
  if (!fetch->plan->add_chunks(peer, have.runs)) {
    throw base::MessageError("protocol error: chunk runs beyond the end of the file");
  }
}

void FetchQueue::receive(std::size_t peer, const message::Chunk& chunk, Time now) {
  if (windows_.at(peer).outstanding() > 0) windows_[peer].received(now, chunk.content.size());
  const auto fetch = find_fetching(chunk.id);
  // Not expected where the fetch that requested it has ended since.
  if (fetch == fetches_.end() || !fetch->plan->waits_for(peer, chunk.chunk)) {
    repeated_bytes_ += chunk.content.size();
    return;
  }
  fetch->last_progress = now;
  try {
    // A wrong chunk stays lacking: the peer is dropped, and another source is asked.
    if (!fetch->destination->file().write(chunk.chunk, chunk.content)) {
      throw base::MessageError("protocol error: the hash of a chunk does not match");
    }
  } catch (const base::MessageError&) {
    throw;
  } catch (const std::exception&) {
    end(fetch, std::current_exception());
    return;
  }
  fetch->plan->received(peer, chunk.chunk);
  fetch->fetched += chunk.content.size();
  fetched_bytes_ += chunk.content.size();
  if (fetch->destination->content()) {
    chunk_source_.add(chunk.id, chunk.chunk);
    peers_.announce(chunk.id, {{chunk.chunk, 1}});
  }
  if (fetch->plan->done()) finish(fetch);
}

void FetchQueue::receive(std::size_t peer, const message::Redirect& redirect, Time now) {
  if (windows_.at(peer).outstanding() > 0) windows_[peer].declined();
  const auto fetch = find_fetching(redirect.id);
  if (fetch == fetches_.end()) return;
  const auto process = net::ProcessName::parse(redirect.process);
  const auto to = process ? peers_.find(*process) : std::nullopt;
  fetch->plan->redirected(peer, redirect.chunk, to, now);
}

void FetchQueue::receive(std::size_t peer, const message::Missing& missing) {
  if (windows_.at(peer).outstanding() > 0) windows_[peer].declined();
  const auto fetch = find_fetching(missing.id);
  if (fetch != fetches_.end()) fetch->plan->missing(peer, missing.chunk);
}

void FetchQueue::advance(Time now) {
  for (auto fetch = fetches_.begin(); fetch != fetches_.end(); ++fetch) {
    if (fetch->state == State::waiting && may_open(fetch, now)) open(fetch);
  }
  std::vector<std::size_t> nearest_first;
  for (std::size_t peer = 0; peer < sources_.size(); ++peer) {
    if (sources_[peer].connected) nearest_first.push_back(peer);
  }
  std::stable_sort(nearest_first.begin(), nearest_first.end(), [this](auto a, auto b) {
    return windows_[a].round_trip() < windows_[b].round_trip();
  });
  for (const std::size_t peer : nearest_first) {
    while (windows_[peer].room() > 0 && limit_.due() <= now && request_one(peer, now)) {
    }
  }
  // Behind the requests: a source without outstanding ones has nothing that may be requested now.
  for (auto next = fetches_.begin(); next != fetches_.end();) {
    const auto fetch = next++;  // end() erases it
    if (fetch->state == State::fetching) end_if_stalled(fetch, now);
  }
}

// One fetch of a content at a time: the next one finds the chunks of the one before.
bool FetchQueue::may_open(Position fetch, Time now) {
  const auto first = std::find_if(fetches_.begin(), fetches_.end(),
                                  [&](const Fetch& other) { return other.id == fetch->id; });
  return first == fetch && now >= fetch->retry_at;
}

void FetchQueue::open(Position fetch) {
  fetch->state = State::opening;
  const ChunkSource::Offer* offer = chunk_source_.find(fetch->id);
  const std::filesystem::path local = offer != nullptr ? offer->path : std::filesystem::path();
  // The list keeps the fetch in place: in this state nothing erases it.
  file_worker_.run(
      [this, fetch, local] {
        fetch->destination = DestinationFile::open(store_, fetch->request, local);
      },
      [this, fetch](const std::exception_ptr& error) { opened(fetch, error); });
}

void FetchQueue::opened(Position fetch, const std::exception_ptr& error) {
  if (error || fetch->cancelled) {
    end(fetch, error);
    return;
  }
  const Time now = Clock::now();
  if (fetch->destination == nullptr) {
    fetch->state = State::waiting;
    fetch->retry_at = now + kWriteLockRetry;
    return;
  }
  PartialFile& file = fetch->destination->file();
  if (const auto content = fetch->destination->content()) {
    pinned_.push_back(content);
    chunk_source_.offer({file.table(), file.path(), file.chunks(), content});
    peers_.announce(fetch->id, file.chunks().runs());
  }
  ChunkSet lacking = fetch->request.chunks;
  lacking.erase(file.chunks());
  fetch->plan.emplace(std::move(lacking),
                      static_cast<std::uint64_t>(now.time_since_epoch().count()));
  fetch->last_progress = now;
  fetch->state = State::fetching;
  if (fetch->plan->done()) {
    finish(fetch);
    return;
  }
  for (std::size_t peer = 0; peer < sources_.size(); ++peer) {
    if (sources_[peer].connected) subscribe(peer, *fetch, now);
  }
}

void FetchQueue::subscribe(std::size_t peer, Fetch& fetch, Time now) {
  if (sources_[peer].spared) fetch.plan->spare(peer);
  // Behind chunks in flight the answer would not show the round trip.
  if (windows_[peer].outstanding() == 0) sources_[peer].subscribed_at = now;
  peers_.send(peer, message::Subscribe{fetch.id});
}

// Sources keep a subscription until it is withdrawn, and limit how many a peer has.
void FetchQueue::unsubscribe(const std::string& id) {
  for (std::size_t peer = 0; peer < sources_.size(); ++peer) {
    if (sources_[peer].connected) peers_.send(peer, message::Unsubscribe{id});
  }
}

bool FetchQueue::request_one(std::size_t peer, Time now) {
  for (Fetch& fetch : fetches_) {
    if (fetch.state != State::fetching) continue;
    const auto choice = fetch.plan->next(peer, windows_, now);
    if (!choice) continue;
    // The stall timeout counts from the first request in flight.
    if (!fetch.plan->waits()) fetch.last_progress = now;
    fetch.plan->requested(peer, choice->chunk);
    windows_[peer].requested(now);
    limit_.add(now, fetch.request.table.bytes(choice->chunk));
    peers_.send(peer, message::GetChunk{fetch.id, choice->chunk, choice->force});
    return true;
  }
  return false;
}

void FetchQueue::finish(Position fetch) {
  fetch->state = State::finishing;
  file_worker_.run([fetch] { fetch->destination->finish(); },
                   [this, fetch](const std::exception_ptr& error) { end(fetch, error); });
}

void FetchQueue::end(Position fetch, const std::exception_ptr& error) {
  const Fetch ended = std::move(*fetch);
  fetches_.erase(fetch);
  if (ended.destination && ended.state == State::fetching) {
    // There is no caller to return an error to: the agent reports it.
    file_worker_.run([destination = ended.destination] { destination->abandon(); },
                     [](const std::exception_ptr& failed) {
                       if (failed) std::rethrow_exception(failed);
                     });
  }
  if (ended.plan) unsubscribe(ended.id);
  if (!ended.cancelled) ended.done(error, ended.fetched);
}

void FetchQueue::end_if_stalled(Position fetch, Time now) {
  if (now - fetch->last_progress <= stall_timeout_) return;
  std::string cause = "no connected host has the rest";
  for (std::size_t peer = 0; peer < sources_.size(); ++peer) {
    if (!sources_[peer].connected) continue;
    const bool open = fetch->plan->has_open(peer);
    // Our own limit is no fault of a source.
    if (open && limit_.due() > now && !fetch->plan->waits()) fetch->last_progress = now;
    // The window of a source is shared: the fetches before this one use it first.
    const bool behind = open && windows_[peer].outstanding() > 0;
    if (!behind && !fetch->plan->waits_for(peer)) continue;
    const net::LinkState link = peers_.state(peer);
    // While a path is down, the link itself decides when to give up.
    fetch->last_progress = link.connected ? std::max(fetch->last_progress, link.last_data) : now;
    cause = fmt::format("no data from {} for {} s", link.peer, stall_timeout_.count());
  }
  if (now - fetch->last_progress <= stall_timeout_) return;
  end(fetch, std::make_exception_ptr(
                 base::UserError(base::ExitCode::stalled, incomplete(*fetch) + ": " + cause)));
}

std::string FetchQueue::incomplete(const Fetch& fetch) const {
  return fmt::format("cannot fetch {}: {} of {} bytes are missing", fetch.request.path.string(),
                     fetch.plan->lacking().bytes(fetch.request.table),
                     fetch.request.chunks.bytes(fetch.request.table));
}

}  // namespace strait::transfer
