#include "launcher/transfer/transfer_agent.h"

#include <fmt/format.h>

#include <utility>

#include "launcher/base/errors.h"

namespace strait::transfer {

namespace fs = std::filesystem;

// One call for each kind of message, on the receiving thread.
struct TransferAgent::MessageHandler {
  TransferAgent& agent;
  std::size_t peer;

  void operator()(const message::Get& get) const { agent.server_.request(peer, get); }
  void operator()(message::Chunk chunk) const { agent.fetcher_.receive(peer, std::move(chunk)); }
  void operator()(const message::Missing& missing) const { agent.fetcher_.receive(peer, missing); }
  void operator()(const message::Wait& /*wait*/) const {}  // the link itself notes that data came

  void operator()(const message::Table& table) const { agent.answered(peer, table.command, table); }
  void operator()(const message::Accepting& accepting) const {
    agent.answered(peer, accepting.command, accepting);
  }
  void operator()(const message::Done& done) const { agent.answered(peer, done.command, done); }
  void operator()(const message::Failed& failed) const {
    agent.answered(
        peer, failed.command,
        std::make_exception_ptr(base::UserError(
            failed.code, fmt::format("host {}: {}", agent.peers_.host(peer), failed.text))));
  }

  // The commands.
  void operator()(auto command) const {
    if (!agent.commands_ || agent.peers_.name(peer) != net::ProcessName::coordinator()) {
      throw base::MessageError("protocol error: commands are accepted from the launcher only");
    }
    agent.commands_->run(peer, std::move(command));
  }
};

TransferAgent::TransferAgent(TransferAgentOptions options)
    : options_(std::move(options)),
      store_(options_.store),
      peers_({[this](std::size_t peer, message::Message received) {
                std::visit(MessageHandler{*this, peer}, std::move(received));
              },
              [this](std::size_t peer, const std::string& cause) { disconnected(peer, cause); }}),
      server_(peers_, options_.upload_bytes_per_second, options_.stall_timeout),
      fetcher_(store_, server_, peers_, options_.stall_timeout,
               options_.download_bytes_per_second) {
  if (!options_.host) return;
  commands_ = std::make_unique<HostCommands>(store_, server_, fetcher_, peers_, *options_.host);
}

// Closes links first, so that no thread blocks on one; then ends the threads that use other parts.
TransferAgent::~TransferAgent() {
  peers_.close();
  fetcher_.close();
  server_.stop();
  if (commands_) commands_->stop();
}

void TransferAgent::add_peer(const net::ProcessName& peer, const std::string& host,
                             std::unique_ptr<net::Link> link, const std::string& key) {
  peers_.add(peer, host, std::move(link), key);
}

void TransferAgent::remove_peer(const net::ProcessName& name, const std::string& cause) {
  if (const auto peer = peers_.find(name)) peers_.drop(*peer, cause);
}

void TransferAgent::disconnected(std::size_t peer, const std::string& cause) {
  server_.remove_peer(peer);
  fetcher_.remove_peer(peer, cause);
  std::vector<OnAnswer> failed;
  {
    const MutexLock lock(mutex_);
    std::erase_if(pending_, [&](auto& entry) {
      if (entry.second.peer != peer) return false;
      failed.push_back(std::move(entry.second.on_answer));
      return true;
    });
  }
  const auto error = std::make_exception_ptr(base::UserError(base::ExitCode::peer_lost, cause));
  for (const OnAnswer& on_answer : failed) on_answer(error);
  if (options_.on_event) options_.on_event(fmt::format("transfer link closed: {}", cause));
}

ChunkTable TransferAgent::offer(const fs::path& path) {
  ChunkTable table = store_.table_of(path);
  server_.offer(table, path);
  return table;
}

template <class Command>
void TransferAgent::send_command(const net::ProcessName& host, Command command,
                                 OnAnswer on_answer) {
  const auto error = std::make_exception_ptr(base::UserError(
      base::ExitCode::peer_lost, fmt::format("{} is not connected", host.describe())));
  const auto peer = peers_.find(host);
  if (!peer) return on_answer(error);
  command.command = ++numbers_;
  {
    const MutexLock lock(mutex_);
    pending_[command.command] = {*peer, std::move(on_answer)};
  }
  // If the peer has just disconnected, disconnected() may have run before the command was recorded.
  if (!peers_.send(*peer, command)) answered(*peer, command.command, error);
}

void TransferAgent::answered(std::size_t peer, std::uint64_t command, const Answer& answer) {
  OnAnswer on_answer;
  {
    const MutexLock lock(mutex_);
    const auto found = pending_.find(command);
    if (found == pending_.end() || found->second.peer != peer) return;
    on_answer = std::move(found->second.on_answer);
    pending_.erase(found);
  }
  on_answer(answer);
}

template <class Answered, class Value, class Command>
std::future<Value> TransferAgent::ask(const net::ProcessName& host, Command command,
                                      Value Answered::*value) {
  const auto promise = std::make_shared<std::promise<Value>>();
  send_command(host, std::move(command), [promise, value](const Answer& answer) {
    if (const auto* got = std::get_if<Answered>(&answer)) return promise->set_value(got->*value);
    const auto* error = std::get_if<std::exception_ptr>(&answer);
    promise->set_exception(error != nullptr
                               ? *error
                               : std::make_exception_ptr(base::MessageError(
                                     "protocol error: not the answer to the command")));
  });
  return promise->get_future();
}

std::future<ChunkTable> TransferAgent::stat(const net::ProcessName& host, const fs::path& path) {
  return ask(host, message::Stat{0, path.string()}, &message::Table::table);
}

std::future<std::uint64_t> TransferAgent::fetch_on(const net::ProcessName& host,
                                                   const FetchRequest& request,
                                                   const std::optional<net::ProcessName>& source) {
  const bool file = request.as == FetchRequest::As::file;
  message::Fetch fetch{0, request.table, file ? std::vector<ChunkRun>() : request.chunks.runs(),
                       request.path.string(), ""};
  if (!source) return ask(host, std::move(fetch), &message::Done::fetched);
  fetch.source = source->text();
  const auto promise = std::make_shared<std::promise<std::uint64_t>>();
  link_hosts(*source, host, [this, host, fetch = std::move(fetch), promise] {
    send_command(host, fetch, [promise](const Answer& answer) {
      const auto* done = std::get_if<message::Done>(&answer);
      if (done != nullptr) return promise->set_value(done->fetched);
      const auto* error = std::get_if<std::exception_ptr>(&answer);
      if (error != nullptr) promise->set_exception(*error);
    });
  });
  return promise->get_future();
}

// Of two host agents the one with the greater name connects, so that there is one link.
void TransferAgent::link_hosts(const net::ProcessName& one, const net::ProcessName& other,
                               const std::function<void()>& then) {
  const auto& [lower, greater] = std::minmax(one, other);
  const auto connects = peers_.find(greater);
  // A lost host would not answer until its link gives up.
  const auto is_up = [this](const auto& peer) { return peer && peers_.state(*peer).connected; };
  if (!is_up(connects) || !is_up(peers_.find(lower))) return then();
  const message::Accept accept{0, greater.text(), peers_.key(*connects)};
  send_command(lower, accept, [this, lower = lower, connects = *connects, then](const Answer& got) {
    const auto listens = peers_.find(lower);
    const auto* accepting = std::get_if<message::Accepting>(&got);
    if (listens && accepting != nullptr && !accepting->endpoint.empty()) {
      peers_.send(connects, message::Connect{lower.text(), peers_.host(*listens),
                                             accepting->endpoint, peers_.key(*listens)});
    }
    then();
  });
}

std::future<std::uint64_t> TransferAgent::put(const net::ProcessName& host, const fs::path& path,
                                              const std::string& text) {
  return ask(host, message::Put{0, path.string(), text}, &message::Done::fetched);
}

std::future<std::uint64_t> TransferAgent::prune(const net::ProcessName& host,
                                                const fs::path& run_directory,
                                                const std::vector<std::uint64_t>& steps) {
  return ask(host, message::Prune{0, run_directory.string(), steps}, &message::Done::fetched);
}

std::future<std::uint64_t> TransferAgent::rewind(const net::ProcessName& host,
                                                 const fs::path& run_directory,
                                                 std::uint64_t step) {
  return ask(host, message::Rewind{0, run_directory.string(), step}, &message::Done::fetched);
}

}  // namespace strait::transfer
