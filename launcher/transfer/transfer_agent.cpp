#include "launcher/transfer/transfer_agent.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "framework/store/store_error.h"
#include "launcher/base/errors.h"

namespace strait::transfer {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAdvanceEvery{100};  // for timeouts and retries
constexpr int kServedAtOnce = 4;  // chunks, before messages are received again

}  // namespace

TransferAgent::TransferAgent(TransferAgentOptions options)
    : options_(std::move(options)),
      store_(options_.store),
      tables_(options_.store / "tables"),
      upload_limit_(options_.upload_bytes_per_second),
      peers_(
          tasks_,
          {[this](std::size_t peer, const message::Message& received) { handle(peer, received); },
           [this](std::size_t peer, const std::string& cause) { disconnected(peer, cause); }}),
      file_worker_(tasks_),
      fetches_(store_, chunk_source_, peers_, file_worker_, options_.stall_timeout,
               RateLimit(options_.download_bytes_per_second)),
      commands_(fetches_, tables_, chunk_source_, peers_, file_worker_, numbers_),
      thread_([this] { run(); }) {}

TransferAgent::~TransferAgent() {
  tasks_.close();
  thread_.join();
  file_worker_.stop();  // before the fetches that its work refers to
}

void TransferAgent::run() {
  while (!tasks_.closed()) {
    const Clock::time_point now = Clock::now();
    run_or_report([&] { fetches_.advance(now); });
    run_or_report([&] { serve(now), send_heartbeats(now); });
    fetched_ = fetches_.fetched_bytes();
    repeated_ = fetches_.repeated_bytes();
    const auto next = now + kAdvanceEvery;
    const auto due = serve_queue_.empty() ? next : std::min(upload_limit_.due(), next);
    for (const TaskQueue::Task& task : tasks_.take_until(due)) run_or_report(task);
  }
}

// An error of one task must not end the process. Whoever waits for its result gets an error, too:
// the promise is destroyed with the task, or the fetch ends at its timeout.
void TransferAgent::run_or_report(const std::function<void()>& task) {
  try {
    task();
  } catch (const std::exception& error) {
    const std::string text = base::describe_failure(error).text;
    if (text == std::exchange(last_error_, text) || !options_.on_event) return;
    options_.on_event(fmt::format("transfer: {}", text));
  }
}

void TransferAgent::serve(Clock::time_point now) {
  for (int served = 0; served < kServedAtOnce && upload_limit_.due() <= now; ++served) {
    const auto request = serve_queue_.next();
    if (!request) return;
    auto frame = chunk_source_.read(request->id, request->chunk);
    if (!frame) {
      peers_.send(request->peer, message::Missing{request->id, request->chunk});
      continue;
    }
    const std::uint64_t bytes = chunk_source_.find(request->id)->table.bytes(request->chunk);
    peers_.send_frame(request->peer, std::move(*frame));
    upload_limit_.add(now, bytes);
    sent_ += bytes;
  }
}

// A chunk may be due later than a peer waits for data. A message that offers nothing new is data.
void TransferAgent::send_heartbeats(Clock::time_point now) {
  if (upload_limit_.due() <= now || now < heartbeat_sent_ + options_.stall_timeout / 4.0) return;
  heartbeat_sent_ = now;
  for (const auto& [peer, id] : serve_queue_.waiting()) peers_.send(peer, message::Have{id, {}});
}

void TransferAgent::add_peer(const net::ProcessName& name, const std::string& host,
                             std::unique_ptr<net::Link> link) {
  // A task must be copyable, a unique_ptr is not.
  const auto shared = std::make_shared<std::unique_ptr<net::Link>>(std::move(link));
  tasks_.add([this, name, host, shared] {
    const std::size_t peer = peers_.add(name, host, std::move(*shared));
    fetches_.add_peer(peer, name == net::ProcessName::coordinator(), Clock::now());
    for (const auto& [listening, endpoint] : endpoints_) introduce(peer, listening);
  });
}

void TransferAgent::disconnected(std::size_t peer, const std::string& cause) {
  serve_queue_.remove_peer(peer);
  endpoints_.erase(peer);
  fetches_.remove_peer(peer, cause);
  pending_.fail_all(peer,
                    std::make_exception_ptr(base::UserError(base::ExitCode::peer_lost, cause)));
  if (options_.on_event) options_.on_event(fmt::format("transfer link closed: {}", cause));
}

ChunkTable TransferAgent::offer(const fs::path& path) {
  ChunkTable table = tables_.table(path);
  tasks_.add([this, path, table] { offer_file(chunk_source_, peers_, path, table); });
  return table;
}

TransferAgent::Fetching TransferAgent::fetch(FetchRequest request) {
  const auto promise = std::make_shared<std::promise<std::uint64_t>>();
  const std::uint64_t number = ++numbers_;
  tasks_.add([this, number, request = std::move(request), promise] {
    fetches_.start(number, request, [promise](const std::exception_ptr& error, auto fetched) {
      error ? promise->set_exception(error) : promise->set_value(fetched);
    });
  });
  return {number, promise->get_future()};
}

void TransferAgent::cancel(std::uint64_t number) {
  tasks_.add([this, number] {
    fetches_.cancel(number);
    if (const auto peer = pending_.cancel(number)) peers_.send(*peer, message::Cancel{number});
  });
}

template <class Value, class Command>
std::future<Value> TransferAgent::send_command(const net::ProcessName& host_agent,
                                               Command command) {
  auto result = std::make_shared<PendingCommands::Result>(std::promise<Value>());
  auto future = std::get<std::promise<Value>>(*result).get_future();
  command.command = ++numbers_;
  tasks_.add([this, host_agent, command = std::move(command), result] {
    if (const auto peer = peers_.find(host_agent)) {
      pending_.add(command.command, *peer, result);
      peers_.send(*peer, command);
    } else {
      std::get<std::promise<Value>>(*result).set_exception(std::make_exception_ptr(base::UserError(
          base::ExitCode::peer_lost, fmt::format("{} is not connected", host_agent.describe()))));
    }
  });
  return future;
}

std::future<ChunkTable> TransferAgent::stat(const net::ProcessName& host_agent,
                                            const fs::path& path) {
  return send_command<ChunkTable>(host_agent, message::Stat{0, path.string()});
}

std::future<std::uint64_t> TransferAgent::fetch_on(const net::ProcessName& host_agent,
                                                   const FetchRequest& request) {
  return send_command<std::uint64_t>(
      host_agent, message::Fetch{0, request.table, request.chunks.runs(), request.path.string()});
}

std::future<std::uint64_t> TransferAgent::write_file(const net::ProcessName& host_agent,
                                                     const fs::path& path,
                                                     const std::string& text) {
  return send_command<std::uint64_t>(host_agent, message::WriteFile{0, path.string(), text});
}

std::future<std::uint64_t> TransferAgent::prune_checkpoints(
    const net::ProcessName& host_agent, const fs::path& run_directory,
    const std::vector<std::uint64_t>& steps) {
  return send_command<std::uint64_t>(host_agent,
                                     message::PruneCheckpoints{0, run_directory.string(), steps});
}

std::future<std::uint64_t> TransferAgent::rewind(const net::ProcessName& host_agent,
                                                 const fs::path& run_directory,
                                                 std::uint64_t step) {
  return send_command<std::uint64_t>(host_agent, message::Rewind{0, run_directory.string(), step});
}

std::future<ChunkTable> TransferAgent::hold_memory(const net::ProcessName& host_agent,
                                                   const fs::path& path) {
  return send_command<ChunkTable>(host_agent, message::HoldMemory{0, path.string()});
}

std::future<std::uint64_t> TransferAgent::fetch_to_memory(const net::ProcessName& host_agent,
                                                          const ChunkTable& table) {
  return send_command<std::uint64_t>(host_agent, message::FetchToMemory{0, table});
}

void TransferAgent::release(const std::vector<std::string>& ids) {
  tasks_.add([this, all = fmt::format("{}", fmt::join(ids, ""))] {
    forget(all);
    for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
      if (peers_.connected(peer)) peers_.send(peer, message::Release{++numbers_, all});
    }
  });
}

void TransferAgent::forget(const std::string& ids) {
  for (std::size_t at = 0; at < ids.size(); at += ChunkTable::kDigits) {
    const std::string id = ids.substr(at, ChunkTable::kDigits);
    chunk_source_.release(id);
    if (chunk_source_.find(id) != nullptr) continue;  // a file that may be on its way
    serve_queue_.forget(id);
    peers_.unsubscribe_all(id);
  }
}

void TransferAgent::announce_endpoint(const std::string& endpoint) {
  tasks_.add([this, endpoint] {
    const auto launcher = peers_.find(net::ProcessName::coordinator());
    if (launcher) peers_.send(*launcher, message::Listening{endpoint});
  });
}

// Of two host agents the one with the greater name connects, so that there is one link.
void TransferAgent::introduce(std::size_t peer, std::size_t listening) {
  if (!peers_.connected(peer) || !(peers_.name(listening) < peers_.name(peer))) return;
  peers_.send(peer, message::PeerEndpoint{peers_.name(listening).text(), peers_.host(listening),
                                          endpoints_.at(listening)});
}

// An earlier run may have stored the content that a peer subscribes to.
void TransferAgent::offer_stored(const std::string& id) {
  const auto stored = std::make_shared<std::optional<ChunkSource::Offer>>();
  file_worker_.run(
      [this, id, stored] {
        try {
          if (auto content = store_.find(id)) {
            const PartialFile file(content->data(), content->table());
            *stored = {content->table(), content->data(), file.chunks(),
                       std::make_shared<const PinnedContent>(std::move(*content))};
          }
        } catch (const store::StoreError&) {  // not offered: the peer finds another source
        }
      },
      [this, id, stored](const std::exception_ptr& error) {
        if (error) std::rethrow_exception(error);
        if (!*stored) return;
        const std::vector<ChunkRun> runs = (*stored)->chunks.runs();
        chunk_source_.offer(std::move(**stored));
        peers_.announce(id, runs);
      });
}

void TransferAgent::require_launcher(std::size_t peer) const {
  if (options_.accepts_commands && peers_.name(peer) == net::ProcessName::coordinator()) return;
  throw base::MessageError("protocol error: commands are accepted from the launcher only");
}

// One call for each kind of message.
struct TransferAgent::MessageHandler {
  TransferAgent& agent;
  std::size_t peer;

  void operator()(const message::Subscribe& subscribe) const {
    agent.peers_.subscribe(peer, subscribe.id);
    const ChunkSource::Offer* offer = agent.chunk_source_.find(subscribe.id);
    const auto runs = offer != nullptr ? offer->chunks.runs() : std::vector<ChunkRun>{};
    agent.peers_.send(peer, message::Have{subscribe.id, runs});
    if (offer == nullptr) agent.offer_stored(subscribe.id);
  }

  void operator()(const message::Unsubscribe& unsubscribe) const {
    agent.peers_.unsubscribe(peer, unsubscribe.id);
    // The launcher fetches checkpoints, and offers them to no host. Where chunks of inputs went is
    // remembered for hosts that ask later.
    if (agent.peers_.name(peer) == net::ProcessName::coordinator()) {
      agent.serve_queue_.forget(unsubscribe.id);
    }
  }

  void operator()(const message::GetChunk& get) const {
    const ServeQueue::Request request{peer, get.id, get.chunk, get.force};
    const ChunkSource::Offer* offer = agent.chunk_source_.find(get.id);
    if (offer == nullptr || !offer->chunks.contains(get.chunk)) {
      agent.peers_.send(peer, message::Missing{get.id, get.chunk});
    } else if (const auto other = agent.serve_queue_.sent_to_another(request)) {
      const std::string process = agent.peers_.name(*other).text();
      agent.peers_.send(peer, message::Redirect{get.id, get.chunk, process});
    } else if (!agent.serve_queue_.push(request)) {
      throw base::MessageError("protocol error: too many chunk requests at once");
    }
  }

  void operator()(const message::Have& have) const {
    agent.fetches_.receive(peer, have, Clock::now());
  }
  void operator()(const message::Chunk& chunk) const {
    agent.fetches_.receive(peer, chunk, Clock::now());
  }
  void operator()(const message::Redirect& redirect) const {
    agent.fetches_.receive(peer, redirect, Clock::now());
  }
  void operator()(const message::Missing& missing) const { agent.fetches_.receive(peer, missing); }

  void operator()(const message::StatResult& result) const {
    agent.pending_.complete(peer, result.command, result.table);
  }
  void operator()(const message::Done& done) const {
    agent.pending_.complete(peer, done.command, done.fetched);
  }
  void operator()(const message::Failed& failed) const {
    agent.pending_.fail(
        peer, failed.command,
        std::make_exception_ptr(base::UserError(
            failed.code, fmt::format("host {}: {}", agent.peers_.host(peer), failed.text))));
  }

  void operator()(const message::Listening& listening) const {
    if (agent.options_.accepts_commands) {
      throw base::MessageError("protocol error: a host agent is not the launcher");
    }
    agent.endpoints_[peer] = listening.endpoint;
    for (std::size_t other = 0; other < agent.peers_.size(); ++other) {
      agent.introduce(other, peer);
    }
  }
  void operator()(const message::PeerEndpoint& other) const {
    agent.require_launcher(peer);
    const auto name = net::ProcessName::parse(other.process);
    if (!name) throw base::MessageError("protocol error: not a process name");
    if (agent.options_.on_peer_endpoint) {
      agent.options_.on_peer_endpoint(*name, other.host, other.endpoint);
    }
  }

  void operator()(const message::Release& release) const {
    agent.require_launcher(peer);
    agent.forget(release.ids);
    agent.commands_.run(peer, release);
  }

  // The commands.
  void operator()(const auto& command) const {
    agent.require_launcher(peer);
    agent.commands_.run(peer, command);
  }
};

void TransferAgent::handle(std::size_t peer, const message::Message& received) {
  std::visit(MessageHandler{*this, peer}, received);
}

}  // namespace strait::transfer
